"""The papers' tables and figures as data, run, written down and judged; TABLES is the one list."""

from teabert.errors import unknown
from teabert.experiments import frozen, sharing, task_attention, tea_bert
from teabert.experiments.base import Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        tea_bert.RESULTS,
        tea_bert.RATES,
        tea_bert.HEADS,
        tea_bert.PARAMETERS,
        tea_bert.CONTROLS,
        task_attention.POOLING,
        task_attention.PARAMETERS,
        task_attention.RESULTS,
        task_attention.CONTROLS,
        task_attention.TIMES,
        task_attention.QUORA_SIZES,
        sharing.SHARING,
        sharing.SHARING_MORE,
        frozen.FROZEN_METHODS,
    )
}


def find_table(name: str) -> Table:
    """A table by name."""
    if name not in TABLES:
        raise unknown("table", name, TABLES)
    return TABLES[name]

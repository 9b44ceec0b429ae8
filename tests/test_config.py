import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from teabert.config import (
    LEARNING_RATES,
    Recipe,
    apply_change,
    builtin_recipes,
    find_recipe,
    load_recipe,
    parse_recipe,
    read_yaml,
    to_yaml,
)
from teabert.errors import UserError
from teabert.tasks import TASKS

OWN = {"texts": ["one", "two"], "kind": "classes", "labels": ["no", "maybe", "yes"], "files": "own-{split}.csv"}


def refused(given):
    with pytest.raises(UserError) as caught:
        parse_recipe(given)
    message = str(caught.value)
    assert message.startswith("recipe: ")
    return message


@pytest.fixture
def file(tmp_path):
    """A recipe file of three differences"""
    path = tmp_path / "mine.yaml"
    path.write_text("tasks: [sst]\ntrain: {epochs: 3}\nsampling: {batch: 4}\n")
    return path


# where a value comes from


def test_a_value_comes_from_set_before_the_file_before_the_default(file):
    plain = load_recipe(file)
    assert (plain.train.epochs, plain.sampling.batch, plain.train.seed) == (3, 4, 11711)
    changed = load_recipe(file, ["train.epochs=5", "train.seed=1"])
    assert (changed.train.epochs, changed.sampling.batch, changed.train.seed) == (5, 4, 1)
    assert load_recipe(file, ["train.epochs=5", "train.epochs=6"]).train.epochs == 6


def test_a_recipe_is_named_by_its_file_and_finds_its_data_beside_it(file, tmp_path):
    recipe = load_recipe(file)
    assert (recipe.name, recipe.data) == ("mine", str(tmp_path.resolve()))
    assert load_recipe(file, ["name=other", "data=rows"]).name == "other"
    assert load_recipe(file, ["data=rows"]).data == str(tmp_path.resolve() / "rows")
    assert load_recipe(file, ["data=/elsewhere"]).data == "/elsewhere"


def test_the_learning_rate_follows_the_mode_unless_given(file):
    for mode, lr in LEARNING_RATES.items():
        assert load_recipe(file, [f"train.mode={mode}"]).lr == lr
        assert load_recipe(file, [f"train.mode={mode}", "train.lr=3e-5"]).lr == 3e-5


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("a=1", {"a": 1}),
        ("a.b=3e-5", {"a": {"b": 3e-5}}),
        ("a.b.c=x", {"a": {"b": {"c": "x"}}}),
        ("a=", {"a": None}),
        ("a=b=c", {"a": "b=c"}),
        ("a=[1, x]", {"a": [1, "x"]}),
        ("a={b: 2}", {"a": {"b": 2}}),
        ("a=true", {"a": True}),
        ("a='1'", {"a": 1.0}),
    ],
)
def test_a_change_is_written_at_its_place(change, expected):
    given = {}
    apply_change(given, change)
    assert given == expected


def test_a_change_leaves_everything_else_as_it_was():
    given = {"train": {"lr": 1e-5, "epochs": 2}, "tasks": ["sst", "sts"]}
    apply_change(given, "train.lr=1")
    apply_change(given, "tasks.sts.take=5")
    assert given == {"train": {"lr": 1, "epochs": 2}, "tasks": {"sst": None, "sts": {"take": 5}}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.lr", "--set 'train.lr' is not of the form key=value, such as --set train.lr=3e-5."),
        ("=3", "--set '=3' is not of the form key=value"),
        ("", "--set '' is not of the form key=value"),
        ("a=[1", "--set 'a=[1': the value is not valid YAML: "),
    ],
)
def test_a_change_of_another_form_is_refused(change, message):
    with pytest.raises(UserError) as caught:
        apply_change({}, change)
    assert str(caught.value).startswith(message)


def test_an_unknown_key_in_a_change_is_answered_with_the_nearest(file):
    with pytest.raises(UserError) as caught:
        load_recipe(file, ["train.epoch=5"])
    assert str(caught.value).startswith(f"{file}: unknown key 'train.epoch'. Did you mean 'epochs'? Accepted: ")


# what is refused


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "'tasks' is missing; it must be given."),
        (
            {"tasks": ["sst"], "trian": {}},
            "unknown key 'trian'. Did you mean 'train'? Accepted: name, encoder,",
        ),
        (
            {"tasks": ["sst"], "train": {"mode": "full"}},
            "train.mode: 'full' does not fit: input should be 'frozen' or 'finetune'",
        ),
        (
            {"tasks": ["sst"], "train": {"epochs": 0}},
            "train.epochs: 0 does not fit: input should be greater than",
        ),
        ({"tasks": ["sst"], "train": {"epochs": "many"}}, "train.epochs: 'many' does not fit"),
        ({"tasks": ["sst"], "train": {"lr": float("nan")}}, "train.lr: nan does not fit: input should be a finite number"),
        ({"tasks": ["sst"], "train": {"lr": -1}}, "train.lr: -1 does not fit"),
        ({"tasks": ["sst"], "train": {"aggregate": "median"}}, "aggregate: 'median' is not one of mean, course"),
        ({"tasks": ["sst"], "train": 3}, "train: 3 does not fit"),
        ({"tasks": ["sst"], "name": "a/b"}, "name: 'a/b' does not fit"),
        ({"tasks": ["sst"], "injection": "magic"}, "Unknown injection 'magic'."),
        ({"tasks": ["sst"], "injection": {"start": 1}}, "injection: say which method, as a name or as {method: NAME, ...}"),
        ({"tasks": ["sst"], "injection": {"method": "none", "start": 1}}, "injection (none): unknown key 'start'."),
        ({"tasks": []}, "tasks: give the tasks as a list of names, or as a mapping from name to what differs"),
        ({"tasks": {}}, "tasks: give the tasks as a list of names, or as a mapping from name to what differs"),
        ({"tasks": 3}, "tasks: give the tasks as a list of names, or as a mapping from name to what differs"),
        ({"tasks": None}, "tasks: give the tasks as a list of names, or as a mapping from name to what differs"),
        ({"tasks": {"sst": 3}}, "tasks: 'sst' must hold a mapping of what differs, or false to leave it out; got 3"),
        ({"tasks": {"sst": {"taek": 3}}}, "tasks.sst: unknown key 'taek'. Did you mean 'take'?"),
        ({"tasks": ["sstt"]}, "Unknown task 'sstt'. Did you mean 'sst'? Known: "),
        ({"tasks": [["sst"]]}, "tasks: give the tasks as a list of names"),
        ({"tasks": [{"sst": None}]}, "tasks: give the tasks as a list of names"),
        ({"tasks": {"sst": {"head": None}}}, "recipe: tasks.sst: head: a task needs a head: say how it reads and answers"),
        ({"tasks": {"sst": {"head": {"read": 3}}}}, "head.read: 3 does not fit: input should be text or a mapping."),
        ({"tasks": {"sst": {"head": {"answer": "dot"}}}}, "recipe: tasks.sst: head.answer: 'dot' compares two vectors"),
        ({"tasks": {"quora": {"pair": "apart"}}}, "recipe: tasks.quora: head.answer: pair: apart gives two vectors"),
        ({"tasks": ["sst"], "injection": ["input", "input"]}, "recipe: injection: 'input' is named twice."),
        ({"tasks": ["sst"], "injection": None}, "injection: None does not fit: input should be text, a mapping or a list."),
        (
            {"tasks": {"sst": {"head": {"share": "quora"}}, "quora": None}},
            "recipe: tasks.sst.head.share: 'sst' and 'quora' are too unlike to share a head",
        ),
    ],
)
def test_an_unusable_recipe_is_refused_with_what_was_given(given, message):
    assert message in refused(given)


def test_all_problems_are_told_at_once():
    message = refused({"tasks": ["sst"], "train": {"epochs": 0, "sed": 1}, "encodr": "x"})
    assert [line.removeprefix("recipe: ").split(".")[0] for line in message.splitlines()] == [
        "train",
        "unknown key 'train",
        "unknown key 'encodr'",
    ]


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.shares_rows_with])
def test_tasks_that_share_rows_are_never_trained_together(name):
    for other in TASKS[name].shares_rows_with:
        for tasks in ([name, other], [other, "cfimdb", name]):
            message = refused({"tasks": tasks})
            assert f"'{name}' is never trained together with '{other}'" in message
            assert "so the scores would be false. Leave one of them out." in message
        assert set(parse_recipe({"tasks": [name, "cfimdb"]}).tasks) == {name, "cfimdb"}


def test_a_task_of_ones_own_can_say_that_it_shares_rows():
    message = refused({"tasks": {"own": OWN | {"shares_rows_with": ["sst"]}, "sst": None}})
    assert "'own' is never trained together with 'sst'" in message


# the forms of tasks


def test_tasks_may_be_a_list_a_mapping_or_one_name():
    assert parse_recipe({"tasks": "sst"}) == parse_recipe({"tasks": ["sst"]}) == parse_recipe({"tasks": {"sst": None}})
    recipe = parse_recipe({"tasks": {"sst": {"take": 10}, "sts": {}, "own": OWN}})
    assert list(recipe.tasks) == ["sst", "sts", "own"]
    assert recipe.tasks["sst"].take == 10
    assert recipe.tasks["sts"] == TASKS["sts"]
    assert recipe.tasks["own"].labels == ("no", "maybe", "yes")


def test_a_recipe_cannot_be_changed_afterwards():
    recipe = parse_recipe({"tasks": ["sst"]})
    with pytest.raises(ValueError, match="frozen"):
        recipe.train.epochs = 3


# files


@pytest.mark.parametrize("file", builtin_recipes(), ids=lambda file: file.stem)
def test_every_recipe_that_comes_with_teabert_loads(file):
    recipe = load_recipe(file)
    assert recipe.name == file.stem
    assert recipe.tasks
    assert load_recipe(file.stem) == load_recipe(f"{file.stem}.yaml") == recipe
    assert len(file.read_text().splitlines()) < 40, "differences only"


def test_there_are_recipes_to_load():
    assert {"sst-baseline", "all-baseline", "task-attention-baseline"} <= {file.stem for file in builtin_recipes()}


def test_a_file_comes_before_a_recipe_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sst-baseline.yaml").write_text("tasks: [sts]")
    assert find_recipe("sst-baseline") != find_recipe("sst-baseline.yaml")
    assert list(load_recipe("sst-baseline.yaml").tasks) == ["sts"]


def test_an_unknown_recipe_is_answered_with_the_nearest_and_the_list():
    with pytest.raises(UserError) as caught:
        find_recipe("sst-basline")
    message = str(caught.value)
    assert message.startswith("There is no recipe file sst-basline. Did you mean 'sst-baseline'? Recipes that come with")
    assert all(file.stem in message for file in builtin_recipes())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"tasks: [sst", " is not valid YAML: "),
        (b"tasks: sst\n\tb: 1", " is not valid YAML: "),
        (b"", " must hold a mapping of recipe keys, such as 'tasks: [sst]'."),
        (b"- sst", " must hold a mapping of recipe keys"),
        (b"a: \xff", " is not UTF-8 text: invalid start byte at byte 3."),
        (b"a: !!python/object/apply:os.getcwd []", " is not valid YAML: "),
        (b"a: \0", " is not valid YAML: "),
        (b"[" * 5000, " is not valid YAML: "),
        (b"? [a]\n: 1", " is not valid YAML: "),
        (b"a: 2001-99-99", " is not valid YAML: "),
    ],
)
def test_a_file_that_is_no_recipe_is_refused(tmp_path, content, message):
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_recipe(tmp_path / "mine.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'mine.yaml'}{message}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.one_of(st.binary(max_size=60), st.text("tasks: [sst]{}\n-?!&*|>'\"#%@`1e5", max_size=40).map(str.encode)))
def test_any_bytes_give_a_recipe_or_a_message(content, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    try:
        recipe = load_recipe(path)
    except UserError as error:
        message = str(error)
        message.encode()
        assert message.startswith(str(path))
    else:
        assert recipe.tasks


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.sampled_from(["sst", "mean"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=4,
)
KEYS = ["name", "encoder", "tasks", "data", "injection", "sampling", "train", "x"]
INNER = [
    "train.lr",
    "train.select",
    "train.precision",
    "tasks.sst",
    "tasks.sst.head",
    "tasks.sst.head.read",
    "tasks.sst.files",
]


@given(
    st.sampled_from(
        KEYS + INNER + ["tasks.sst.files", "tasks.sst.labels", "tasks.sst.texts", "tasks.sst.take", "sampling.batch"]
    ),
    VALUES,
)
def test_any_value_anywhere_gives_a_recipe_or_a_message(key, value):
    given = {"tasks": {"sst": {"head": {}}}, "train": {}, "sampling": {}}
    place = given
    *path, last = key.split(".")
    for part in path:
        place = place[part]
    place[last] = value
    try:
        recipe = parse_recipe(given)
    except UserError as error:
        found = str(error)
        assert found.startswith("recipe: ")
    else:
        assert parse_recipe(yaml.safe_load(to_yaml(recipe))) == recipe


# writing a recipe down


def again(recipe):
    return parse_recipe(yaml.safe_load(to_yaml(recipe)))


@pytest.mark.parametrize("file", builtin_recipes(), ids=lambda file: file.stem)
def test_every_recipe_written_down_loads_back_equal(file, tmp_path):
    recipe = load_recipe(file)
    assert again(recipe) == recipe
    (tmp_path / "recipe.yaml").write_text(to_yaml(recipe), encoding="utf-8")
    assert load_recipe(tmp_path / "recipe.yaml") == recipe


def test_a_recipe_written_down_shows_every_default():
    written = yaml.safe_load(to_yaml(parse_recipe({"tasks": ["sst"]})))
    assert set(written) == set(Recipe.model_fields)
    assert written["train"]["epochs"] == 10
    usual = {"read": "mean", "answer": "linear", "dropout": 0.1, "stretch": None, "share": None}
    assert written["tasks"]["sst"]["head"] == usual


LABELS = st.lists(st.one_of(st.text(min_size=1, max_size=6), st.integers(-3, 3), st.booleans()), min_size=2, max_size=4)
TRAIN = st.fixed_dictionaries(
    {},
    optional={
        "lr": st.floats(1e-12, 1),
        "mode": st.sampled_from(["frozen", "finetune"]),
        "clip": st.one_of(st.none(), st.floats(1e-6, 1e6)),
        "select": st.one_of(st.just("dev"), st.floats(0.01, 0.99)),
        "seed": st.integers(0, 2**62),
        "precision": st.sampled_from(["fp32", "bf16", "auto"]),
        "patience": st.one_of(st.none(), st.integers(1, 9)),
        "aggregate": st.sampled_from(["mean", "course"]),
    },
)
SST = st.fixed_dictionaries(
    {},
    optional={
        "take": st.one_of(st.integers(1, 10**6), st.floats(1e-6, 1)),
        "weight": st.floats(1e-6, 1e6),
        "max_tokens": st.integers(8, 512),
        "class_weights": st.one_of(st.just("balanced"), st.lists(st.floats(0.1, 9), min_size=5, max_size=5)),
        "head": st.sampled_from(
            [{"read": {"method": "first_token", "pooler": False}}, {"dropout": 0.3}, {"answer": "linear"}]
        ),
    },
)


@example(train={}, sst={}, labels=["0", "1"], data=None, encoder="\x85")
@given(train=TRAIN, sst=SST, labels=LABELS, data=st.one_of(st.none(), st.text(max_size=8)), encoder=st.text(max_size=8))
def test_any_recipe_written_down_loads_back_equal(train, sst, labels, data, encoder):
    own = OWN | {"labels": labels, "label_separator": "\t| "}
    try:
        recipe = parse_recipe({"tasks": {"sst": sst, "own": own}, "train": train, "data": data, "encoder": encoder})
    except UserError as error:
        assert "two or more different" in str(error)  # noqa: PT017 - labels that read alike are refused
    else:
        assert again(recipe) == recipe


OWN_LABELS = "tasks: {own: {texts: a, kind: classes, files: 'a-{split}.csv', labels: [*a39, *a38]}}"


def test_aliases_cannot_blow_up_a_message(tmp_path):
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 40))]
    for last in ("train: *a39", "tasks: {sst: *a39}", "tasks: [*a39]", "tasks: &t [*t]", "train: &t {lr: *t}", OWN_LABELS):
        (tmp_path / "mine.yaml").write_text("\n".join([*lines, "tasks: [sst]", last]))
        with pytest.raises(UserError) as caught:
            load_recipe(tmp_path / "mine.yaml")
        assert len(str(caught.value)) < 100_000


def test_read_yaml_gives_what_is_written(file):
    assert read_yaml(file) == {"tasks": ["sst"], "train": {"epochs": 3}, "sampling": {"batch": 4}}


def test_key_that_stands_twice_is_refused(tmp_path):
    (tmp_path / "twice.yaml").write_text("tasks: [sst]\ntrain: {epochs: 1}\ntrain: {lr: 1.0e-3}\n")
    with pytest.raises(UserError, match="the key 'train' stands twice"):
        load_recipe(tmp_path / "twice.yaml")


def test_option_of_a_method_named_alone_keeps_the_method(tmp_path):
    (tmp_path / "own.yaml").write_text("tasks: {sst: {head: {read: first_token}}}\n")
    recipe = load_recipe(tmp_path / "own.yaml", ["tasks.sst.head.read.pooler=false"])
    assert recipe.tasks["sst"].head.read == {"method": "first_token", "pooler": False}


def test_public_rows_read_from_the_hub_by_name_are_refused_beside_the_course_s_too():
    own = {"texts": ["sentence1", "sentence2"], "kind": "score", "range": [0, 5], "files": "hub:nyu-mll/glue:stsb"}
    with pytest.raises(UserError, match="'mine' is never trained together with 'sts'"):
        parse_recipe({"tasks": {"sts": {}, "mine": own}})


def test_class_weight_below_zero_is_refused():
    with pytest.raises(UserError, match="-1 is below zero"):
        parse_recipe({"tasks": {"sst": {"class_weights": [1, 1, -1, 1, 1]}}})


def test_labels_called_yes_and_no_are_words(tmp_path):
    own = "{texts: t, kind: binary, labels: [no, yes], files: 't-{split}.csv'}"
    (tmp_path / "own.yaml").write_text(f"tasks: {{own: {own}, more: {own}}}\n")
    recipe = load_recipe(tmp_path / "own.yaml", ["tasks.more.labels=[off, on]", "train.deterministic=false"])
    assert recipe.tasks["own"].labels == ("no", "yes")
    assert recipe.tasks["more"].labels == ("off", "on")
    assert recipe.train.deterministic is False
    assert parse_recipe(yaml.safe_load(to_yaml(recipe))) == recipe

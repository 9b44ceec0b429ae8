// The page at /docs: /openapi.json as a list of routes, with what each takes and answers.

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function schemaOf(content) {
  const [type, { schema }] = Object.entries(content)[0];
  return { type, schema };
}

// a schema as its reader writes it: {"texts": [...], "abstain": number or null}
function shape(schema, all, depth = 0) {
  if (schema.$ref) return shape(all[schema.$ref.split("/").pop()], all, depth);
  if (schema.anyOf) return [...new Set(schema.anyOf.map((each) => shape(each, all, depth)))].join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${shape(schema.items ?? {}, all, depth)}, …]`;
  if (schema.additionalProperties) return `{name: ${shape(schema.additionalProperties, all, depth)}, …}`;
  if (!schema.properties) return schema.type ?? "anything";
  const inner = "  ".repeat(depth + 1);
  const lines = Object.entries(schema.properties).map(([name, each]) => {
    const optional = (schema.required ?? []).includes(name) ? "" : " (optional)";
    return `${inner}"${name}": ${shape(each, all, depth + 1)}${optional}`;
  });
  return `{\n${lines.join(",\n")}\n${"  ".repeat(depth)}}`;
}

function route(path, method, facts, all) {
  const card = make("article", "card route");
  const title = make("h3");
  title.append(make("span", "method", method.toUpperCase()), ` ${path}`);
  card.append(title, make("p", "", facts.description ?? ""));
  const bodies = [["Takes", facts.requestBody?.content], ["Answers", facts.responses["200"]?.content]];
  for (const [what, content] of bodies) {
    if (!content) continue;
    const { type, schema } = schemaOf(content);
    card.append(make("p", "quiet", `${what} ${type}`), make("pre", "", shape(schema ?? {}, all)));
  }
  const problems = Object.entries(facts.responses).filter(([status]) => status !== "200");
  const list = make("dl");
  for (const [status, { description }] of problems) list.append(make("dt", "", status), make("dd", "", description));
  const more = make("details");
  more.append(make("summary", "", "What can go wrong"), list);
  if (problems.length) card.append(more);
  return card;
}

const whole = await (await fetch("/openapi.json")).json();
const cards = Object.entries(whole.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, facts]) => route(path, method, facts, whole.components.schemas)),
);
document.getElementById("routes").replaceChildren(...cards);

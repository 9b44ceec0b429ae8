// The page at /: a text (or a pair) is asked under every task that takes it; answers become bars, attention shades words.

const EXAMPLES = [
  ["The plot creaks, but the cast is a joy to watch."],
  ["I waited an hour and the soup arrived cold."],
  ["How do I get ink out of a shirt?", "What removes an ink stain from clothes?"],
  ["A boy feeds ducks by the pond.", "Somebody is giving birds some bread."],
];
const SHOWN = 6; // labels of a task that are shown before "all"

const at = (id) => document.getElementById(id);
let latest = 0; // of several questions under way, only the newest is shown

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

const percent = (part) => `${(100 * part).toFixed(1)}%`;

async function request(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (at("key").value) headers.Authorization = `Bearer ${at("key").value}`;
  const begun = performance.now();
  const response = await fetch(path, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  const content = await response.json();
  if (response.status === 401) at("key-field").hidden = false;
  if (!response.ok) throw new Error(content.error);
  return { content, milliseconds: performance.now() - begun };
}

function say(text, isBad = false, aloud = "") {
  const status = at("status");
  status.classList.toggle("bad", isBad);
  status.replaceChildren(text, make("span", "hidden-text", aloud));
}

// answers

function bar(label, part, shown, isBest) {
  const row = make("li", isBest ? "best" : "");
  const head = make("div", "bar-head");
  head.append(make("span", "", label), make("span", "", shown));
  const track = make("div", "track");
  const fill = make("div", "fill");
  fill.style.width = percent(Math.min(1, Math.max(0, part)));
  track.append(fill);
  row.append(head, track);
  return row;
}

function bars(pairs, best) {
  const list = make("ul", "bars");
  list.append(...pairs.map(([label, part]) => bar(label, part, percent(part), best.includes(label))));
  return list;
}

function labelsOf(answer, card) {
  const best = [answer.label ?? []].flat();
  const pairs = Object.entries(answer.probabilities);
  if (pairs.length <= SHOWN) {
    card.append(bars(pairs, best));
    return;
  }
  pairs.sort((one, other) => other[1] - one[1]);
  const more = make("details");
  more.append(make("summary", "", `All ${pairs.length} labels`), bars(pairs.slice(SHOWN), best));
  card.append(bars(pairs.slice(0, SHOWN), best), more);
}

function scoreOf(answer, task, card) {
  const [low, high] = task.range ?? [0, 1];
  const list = make("ul", "bars");
  list.append(bar("score", (answer.score - low) / (high - low), answer.score.toFixed(2), true));
  const ends = make("div", "ends");
  ends.append(make("span", "", String(low)), make("span", "", String(high)));
  card.append(list, ends);
}

function inWords(answer) {
  if (answer.error) return answer.error;
  if (answer.score !== undefined) return answer.score.toFixed(2);
  const label = [answer.label ?? []].flat().join(", ") || "none";
  return answer.probability === undefined ? label : `${label}, ${percent(answer.probability)}`;
}

function answerCard(name, answer, task) {
  const card = make("article", "card");
  card.append(make("h3", "", name));
  if (answer.error) {
    card.append(make("p", "bad", answer.error));
    return card;
  }
  const said = make("p", "said");
  said.append(make("strong", "", inWords(answer)));
  card.append(said);
  if (answer.score !== undefined) scoreOf(answer, task, card);
  else labelsOf(answer, card);
  return card;
}

// attention

function wordsOf(found, from, to) {
  const line = make("p", "words");
  const most = Math.max(...found.weights, 1e-9);
  for (let place = from; place < to; place += 1) {
    const word = make("span", "", found.words[place]);
    word.style.backgroundColor = `rgba(var(--glow), ${((0.62 * found.weights[place]) / most).toFixed(3)})`;
    word.title = percent(found.weights[place]);
    word.dataset.place = place;
    line.append(word, " ");
  }
  return line;
}

function attentionCard(name, found) {
  const card = make("article", "card");
  card.append(make("h3", "", name));
  if (found.error) {
    card.append(make("p", "bad", found.error));
    return card;
  }
  const second = found.second ?? found.words.length;
  card.append(wordsOf(found, 0, second));
  if (second < found.words.length) card.append(wordsOf(found, second, found.words.length));
  const order = found.weights.map((weight, place) => [weight, found.words[place]]);
  const top = order.sort((one, other) => other[0] - one[0]).slice(0, 3);
  card.append(make("p", "quiet", `Most read: ${top.map(([weight, word]) => `${word} ${percent(weight)}`).join(", ")}`));
  return card;
}

function pointAt(event) {
  const { place } = event.target.dataset ?? {};
  for (const word of at("attention-cards").querySelectorAll("[data-place]")) {
    word.classList.toggle("same", place !== undefined && word.dataset.place === place);
  }
}

// asking

async function ask(tasks) {
  const first = at("first").value.trim();
  const second = at("second").value.trim();
  const isPair = at("pair").checked;
  if (!first || (isPair && !second)) {
    say(isPair ? "Type both texts first." : "Type a text first.", true);
    (first ? at("second") : at("first")).focus();
    return;
  }
  const mine = (latest += 1);
  const text = isPair ? [first, second] : first;
  const button = at("form").querySelector("button.primary");
  button.setAttribute("aria-disabled", "true");
  say("Asking …");
  try {
    const { content, milliseconds } = await request("/v1/predict", { texts: [text] });
    if (mine !== latest) return;
    const [result] = content.results;
    const answers = Object.entries(result.answers);
    at("answer-cards").replaceChildren(...answers.map(([name, answer]) => answerCard(name, answer, tasks.get(name) ?? {})));
    at("answers").hidden = answers.length === 0;
    at("attention").hidden = true;
    if (result.error) {
      say(result.error, true);
      return;
    }
    const time = `${answers.length === 1 ? "1 task" : `${answers.length} tasks`} answered in ${milliseconds.toFixed(0)} ms.`;
    say(time, false, answers.map(([name, answer]) => ` ${name}: ${inWords(answer)}.`).join(""));
    if (at("status").getBoundingClientRect().bottom > window.innerHeight / 2) at("status").scrollIntoView();
    const seen = await request("/v1/attention", { text });
    if (mine !== latest) return;
    const cards = Object.entries(seen.content.attention).map(([name, found]) => attentionCard(name, found));
    at("attention-cards").replaceChildren(...cards);
    at("attention-time").textContent = `Found in ${seen.milliseconds.toFixed(0)} ms.`;
    at("attention").hidden = false;
  } catch (error) {
    if (mine === latest) say(error instanceof TypeError ? "The server does not answer." : error.message, true);
  } finally {
    if (mine === latest) button.removeAttribute("aria-disabled");
  }
}

function setPair(isPair) {
  at("pair").checked = isPair;
  at("second-field").hidden = !isPair;
}

function offer(tasks) {
  const lengths = new Set([...tasks.values()].map((task) => task.texts.length));
  const fitting = EXAMPLES.filter((texts) => lengths.size === 0 || lengths.has(texts.length));
  at("examples").replaceChildren(
    ...fitting.map((texts) => {
      const button = make("button", "", texts.join(" / "));
      button.type = "button";
      button.addEventListener("click", () => {
        setPair(texts.length === 2);
        [at("first").value, at("second").value] = [texts[0], texts[1] ?? ""];
        ask(tasks);
      });
      return button;
    }),
  );
  if (lengths.size === 1) setPair(lengths.has(2));
}

async function start() {
  const tasks = new Map();
  const learn = async () => {
    const { content } = await request("/v1/tasks");
    for (const task of content.tasks) tasks.set(task.name, task);
    at("tagline").textContent = tasks.size === 1 ? "One task." : `One model, ${tasks.size} tasks at once.`;
    offer(tasks);
  };
  at("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (tasks.size === 0) await learn().catch(() => {});
    ask(tasks);
  });
  at("form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("form").requestSubmit();
  });
  at("pair").addEventListener("change", () => setPair(at("pair").checked));
  at("attention-cards").addEventListener("pointerover", pointAt);
  at("attention-cards").addEventListener("pointerleave", pointAt);
  offer(tasks);
  await learn().catch((error) => say(error instanceof TypeError ? "The server does not answer." : error.message, true));
}

start();

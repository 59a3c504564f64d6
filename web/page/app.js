// The controls, the verdict and the levers. data.js, draw.js and main.js, which every page of wgrad has, draw the pictures.
import { Planner } from "./planner.js";

const form = document.getElementById("settings"), slide = document.getElementById("slide");
const verdict = document.getElementById("verdict"), answer = document.getElementById("answer");
const levers = document.getElementById("levers"), searching = document.getElementById("searching");
const times = document.getElementById("times");
const controls = [...form.elements].filter(control => control.name);
// What each known network takes: vectors, images or tokens.
const takes = new Map();
// A file that was dropped or chosen: its name and bytes.
let file, searched, quick;

function value(control) {
  if (control.type === "checkbox") return control.checked ? "true" : "";
  return control.value.trim();
}

// The settings that differ from the defaults, by name.
function settings() {
  const usual = control => (control.name === "model" ? "" : control.dataset.default ?? "");
  const entries = controls.map(control => [control.name, value(control), usual(control)]);
  return Object.fromEntries(entries.filter(([, value, usual]) => value !== "" && value !== usual).map(([name, value]) => [name, value]));
}

// A select has a default for an empty value.
function set(name, value) {
  const control = form.elements[name];
  if (control.type === "checkbox") control.checked = value === "true";
  else control.value = value === "" ? control.dataset.default ?? "" : value;
}

// Writes the settings into the link of the page. A file's bytes have no place in it.
function remember() {
  const link = new URLSearchParams(settings());
  history.replaceState(null, "", "#" + link);
}

function recall() {
  const link = new URLSearchParams(location.hash.slice(1));
  for (const { name, defaultValue } of controls) set(name, link.get(name) ?? defaultValue ?? "");
  if (!form.elements.model.value) set("model", "");
  slide.value = form.elements.batch.value;
}

function kind(model) {
  if (file?.name === model) return model.endsWith(".json") ? "tokens" : "file";
  return takes.get(model);
}

// Shows the controls that belong to the network, and empties the others.
function suit() {
  const wanted = kind(form.elements.model.value);
  for (const label of form.querySelectorAll("[data-for]")) {
    label.hidden = label.dataset.for !== wanted;
    const control = label.querySelector("input, select");
    if (label.hidden) set(control.name, "");
  }
}

function say(text, kind) {
  verdict.textContent = text;
  verdict.className = kind ?? "";
}

function percent(fraction) { return `${fraction < 0 ? "−" : "+"}${(100 * Math.abs(fraction)).toFixed(1)} %`; }

function conclude({ title, report, room }) {
  const total = report.device_bytes.total, { budget, card } = Object.fromEntries(new FormData(form));
  const strong = document.createElement("strong"), sentences = [];
  strong.textContent = bytes(total);
  if (room !== undefined) {
    const apart = bytes(Math.abs(room - total));
    strong.textContent += total <= room ? `: fits ${budget}, ${apart} to spare` : `: ${apart} more than ${budget}`;
  }
  const again = report.recompute_time_fraction;
  sentences.push(`${title}: ${(1e3 * report.step_seconds).toPrecision(3)} ms a step on ${card} by the model`
    + (again > 0 ? `, ${(100 * again).toFixed(1)} % of it to recompute` : ""));
  const { parameters, trained_parameters: trained } = report, count = parameters.toLocaleString("en");
  sentences.push(trained === parameters ? `${count} parameters` : `${trained.toLocaleString("en")} of ${count} parameters are trained`);
  if (report.max_batch !== undefined && report.max_batch !== null) {
    sentences.push(report.max_batch ? `The largest batch that fits as it is: ${report.max_batch}` : "As it is, no batch fits");
  }
  if (typeof report.max_seq === "number") {
    sentences.push(report.max_seq ? `The longest context that fits as it is: ${report.max_seq.toLocaleString("en")} tokens` : "As it is, no context fits");
  }
  verdict.className = room === undefined ? "" : total <= room ? "within" : "over";
  verdict.replaceChildren(strong, document.createElement("br"), sentences.join(". ") + ".");
}

// Settings after a change in the words of levers, such as "accumulate 2" or "weights bf16 stochastic".
function changed(words) {
  if (words === "masks as bits") return [["bit_masks", "true"]];
  const [name, first, second] = words.split(" ");
  if (name === "accumulate") return [[name, String(first * (value(form.elements.accumulate) || 1))]];
  if (name === "weights") return [[name, first], ["stochastic_rounding", second === "stochastic" ? "true" : ""]];
  return [[name.replace("-", "_"), first]];
}

function apply(words) {
  for (const change of words.split(", ")) {
    for (const [name, to] of changed(change)) set(name, to);
  }
  ask();
}

function button(words) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Apply";
  button.setAttribute("aria-label", "Apply " + words);
  button.dataset.change = words;
  button.addEventListener("click", () => apply(words));
  return button;
}

// The changes that save bytes: the cheapest combination that fits, then single ones, those that fit first.
function advise({ report }) {
  if (report.fits) return;
  levers.hidden = false;
  const { cheapest, budget_bytes: budget } = report;
  const rows = (report.levers ?? []).map(lever => ({ ...lever, fits: lever.total_bytes <= budget }));
  rows.sort((a, b) => b.fits - a.fits || (a.fits ? a.time_fraction - b.time_fraction : a.total_bytes - b.total_bytes));
  const known = cheapest && rows.findIndex(row => row.name === cheapest.changes);
  if (cheapest && known >= 0) rows.unshift(...rows.splice(known, 1));
  else if (cheapest) rows.unshift({ ...cheapest, name: cheapest.changes, fits: true });
  const table = document.createElement("table"), head = table.createTHead().insertRow();
  table.createCaption().textContent = rows.some(row => row.fits) ? "Changes, those that fit first" : "Nothing fits this budget; these come nearest";
  for (const textContent of ["", "change", "needs", "time", "bits"]) {
    head.append(Object.assign(document.createElement("th"), { textContent, className: textContent === "change" ? "text" : "" }));
  }
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    line.className = row.fits ? "fits" : "";
    line.insertCell().append(button(row.name));
    const exact = row.exact === undefined ? "" : row.exact ? "the same" : "others";
    for (const text of [row.name, bytes(row.total_bytes), percent(row.time_fraction), exact]) line.insertCell().textContent = text;
    line.cells[1].className = "text";
  }
  levers.replaceChildren(table);
}

// The times on all cards, which are modelled only while they are shown.
function list(report, modelled) {
  const table = times.querySelector("table");
  table.replaceChildren();
  for (const { card, modelled_ms } of modelled) {
    const row = table.insertRow(), rate = 1e3 * report.batch / modelled_ms;
    const cells = [card, `${modelled_ms.toPrecision(3)} ms`, `${rate.toPrecision(3)} samples/s`];
    for (const text of cells) row.insertCell().textContent = text;
  }
}

function draw({ text, report, picture, times: modelled, room }) {
  const drawn = JSON.parse(picture);
  if (room !== undefined) {
    // What a session creates beside the arenas is not in the picture.
    const beside = report.device_bytes.total - report.device_bytes.arenas;
    drawn.plans[0].limit = { bytes: Math.max(0, room - beside), name: "budget" };
  }
  renew(drawn);
  list(report, modelled);
  document.querySelector("#text pre").textContent = text;
  answer.classList.remove("stale");
}

function question(settings, what) {
  const bytes = file?.name === settings.model ? file.bytes : undefined;
  return { settings, file: bytes, what, budget: settings.budget, timed: times.open };
}

// The settings of the plan as it is, without a search for what would fit. Recomputation is chosen for a budget: without one it
// would be another plan.
function alone({ budget, max_batch, max_seq, ...rest }) {
  return budget && rest.recompute === "auto" ? { ...rest, budget } : rest;
}

// Plans what the controls say: at once as it is, and then with the budget, which searches for what would fit.
function ask() {
  suit();
  remember();
  searched.stop();
  levers.hidden = searching.hidden = true;
  answer.classList.add("stale");
  const chosen = settings(), { budget } = chosen, quickly = alone(chosen);
  const failed = message => {
    say(message, "error");
    searching.hidden = true;
  };
  const search = () => {
    searching.textContent = "Searching for what fits";
    searching.hidden = false;
    const progress = ({ task, share }) => {
      searching.textContent = `Searching for what fits: ${task}` + (share === undefined ? "" : `, ${Math.floor(100 * share)} %`);
    };
    const done = made => {
      searching.hidden = true;
      conclude(made);
      draw(made);
      advise(made);
    };
    searched.ask(question(chosen), { failed, progress, done });
  };
  if (quickly.budget) {
    quick.stop();
    search();
    return;
  }
  const done = (made, newest) => {
    conclude(made);
    draw(made);
    if (budget && newest) search();
  };
  quick.ask({ ...question(quickly), budget }, { failed, done });
}

// Takes the file that says what a network computes, of those that were dropped together.
async function take(files) {
  const given = [...files].find(({ name }) => /[.](onnx|json)$/.test(name)) ?? files[0];
  if (!given) return;
  if (/[.](safetensors|bin|pt|pth|gguf)$/.test(given.name)) {
    say(`${given.name}: weights alone do not say what a network computes; drop the config.json beside them, or an ONNX file`, "error");
    return;
  }
  file = { name: given.name, bytes: new Uint8Array(await given.arrayBuffer()) };
  const select = form.elements.model;
  select.querySelector("optgroup[label='Your file']")?.remove();
  const group = Object.assign(document.createElement("optgroup"), { label: "Your file" });
  group.append(new Option(file.name));
  select.prepend(group);
  set("model", file.name);
  if (kind(file.name) !== "file") { ask(); return; }
  const failed = message => say(`${file.name}: ${message}`, "error");
  const done = ({ batch }) => {
    set("batch", String(batch ?? (value(form.elements.batch) || 1)));
    ask();
  };
  quick.ask({ file: file.bytes, what: "batch" }, { failed, done });
}

function save() {
  quick.ask(question(alone(settings()), "html"), {
    failed: message => say(message, "error"),
    done: ({ html, title }) => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([html], { type: "text/html" }));
      link.download = title.replace(/[^\w.-]+/g, "-") + ".html";
      link.click();
      URL.revokeObjectURL(link.href);
    },
  });
}

function listenToControls() {
  form.addEventListener("input", event => {
    if (event.target === slide) set("batch", slide.value);
    else if (event.target.name === "batch") slide.value = event.target.value;
    if (event.target.id !== "file") ask();
  });
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("reset", event => {
    event.preventDefault();
    history.replaceState(null, "", location.pathname);
    recall();
    ask();
  });
  document.getElementById("file").addEventListener("change", event => take(event.target.files));
  document.getElementById("link").addEventListener("click", async event => {
    await navigator.clipboard.writeText(location.href);
    event.target.textContent = "Copied";
    setTimeout(() => { event.target.textContent = "Copy a link"; }, 1500);
  });
  document.getElementById("save").addEventListener("click", save);
  times.addEventListener("toggle", () => {
    const failed = message => say(message, "error"), done = made => list(made.report, made.times);
    if (times.open) quick.ask(question(alone(settings())), { failed, done });
  });
  addEventListener("hashchange", () => { recall(); ask(); });
  addEventListener("dragover", event => { event.preventDefault(); document.body.classList.add("drop"); });
  addEventListener("dragleave", event => { if (!event.relatedTarget) document.body.classList.remove("drop"); });
  addEventListener("drop", event => {
    event.preventDefault();
    document.body.classList.remove("drop");
    take(event.dataTransfer.files);
  });
}

async function load_planner() {
  const response = await fetch("wgrad_web_bg.wasm");
  if (!response.ok) throw new Error(`wgrad_web_bg.wasm: ${response.status} ${response.statusText}`);
  // Not compileStreaming: servers that do not know the type of the file would fail.
  const module = await WebAssembly.compile(await response.arrayBuffer());
  [quick, searched] = [new Planner(module), new Planner(module)];
  const { model: known, ...values } = await quick.ready;
  for (const kind of ["images", "tokens", "vectors"]) {
    const group = Object.assign(document.createElement("optgroup"), { label: kind });
    for (const { name } of known.filter(({ takes }) => takes === kind)) group.append(new Option(name));
    form.elements.model.append(group);
  }
  known.forEach(({ name, takes: kind }) => takes.set(name, kind));
  for (const [name, list] of Object.entries(values)) {
    const control = form.elements[name];
    if (name === "frozen_weights") control.append(new Option("as weights", ""));
    for (const value of list) control.append(new Option(value));
  }
}

try {
  listen();
  await load_planner();
  recall();
  listenToControls();
  ask();
} catch (error) {
  say(`The planner could not be loaded: ${error.message}`, "error");
}

// The page that trains: controls, the curve of losses, and what the network makes of its data.
const find = selector => document.querySelector(selector), form = find("#settings");
// The settings of a run where a control is empty.
const DEFAULTS = {
  digits: { batch: 32, epochs: 30 }, cnn_digits: { batch: 64, epochs: 12 },
  char_gpt: { batch: 4, steps: 1000, context: 64, layers: 4, heads: 4, width: 128 },
};
const CHOOSE = "Choose what is learnt.";
// Which buttons can be used: a run is "none", "kept" (in this browser), "opening", "running", "pausing", "resting" or "done".
let state = "none", history = [], total = 0, text, loaded;

const plain = n => n.toLocaleString("en");
const say = (words, kind = "") => { find("#verdict").textContent = words; find("#verdict").className = kind; };

function enter(next) {
  state = next;
  const busy = ["opening", "running", "pausing"].includes(state);
  find("#start").disabled = busy;
  find("#start").textContent = state === "kept" || state === "resting" ? "Train anew" : "Train";
  find("#pause").disabled = !["running", "resting", "kept"].includes(state);
  find("#pause").textContent = state === "resting" || state === "kept" ? "Go on" : "Pause";
  find("#save").disabled = !["resting", "done"].includes(state);
  find("#load").disabled = find("#check").disabled = busy;
  for (const control of form.elements) if (control.name) control.disabled = busy;
}

function settings() {
  const task = form.elements.task.value;
  const chosen = Object.keys(DEFAULTS[task]).map(name => [name, form.elements[name].value]).filter(([, value]) => value !== "");
  return { task, ...Object.fromEntries(chosen.map(([name, value]) => [name, Number(value)])) };
}

function follow() {
  const task = form.elements.task.value;
  for (const label of form.querySelectorAll("[data-for]")) label.hidden = !label.dataset.for.split(" ").includes(task);
  for (const [name, value] of Object.entries(DEFAULTS[task])) form.elements[name].placeholder = value;
}

function open(what) {
  enter("opening");
  say("Opening the GPU.");
  for (const id of ["#curve", "#images", "#written", "#facts", "#table"]) find(id).hidden = true;
  find("#measured").textContent = find("#speed").textContent = "";
  worker.postMessage(what);
}

let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}

function draw() {
  const canvas = find("#curve canvas"), style = getComputedStyle(document.documentElement);
  const [ink, soft, rule] = ["--ink", "--soft", "--rule"].map(name => style.getPropertyValue(name));
  const scale = devicePixelRatio, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  if (!history.length || !width) return;
  const losses = history.map(([, loss]) => loss), left = 48, bottom = height - 22;
  const high = losses.reduce((a, b) => Math.max(a, b)), low = losses.reduce((a, b) => Math.min(a, b), 0), last = Math.max(total, history.at(-1)[0]);
  const x = step => left + (width - left - 8) * step / last, y = loss => bottom - (bottom - 8) * (loss - low) / (high - low || 1);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  for (let i = 0; i <= 4; i += 1) {
    const value = low + (high - low) * i / 4;
    pen.fillStyle = soft;
    pen.textAlign = "right";
    pen.fillText(value.toFixed(2), left - 6, y(value));
    pen.strokeStyle = rule;
    pen.beginPath();
    pen.moveTo(left, y(value));
    pen.lineTo(width - 8, y(value));
    pen.stroke();
  }
  pen.textAlign = "left";
  pen.fillText("0", left, height - 8);
  pen.textAlign = "right";
  pen.fillText(`step ${plain(last)}`, width - 8, height - 8);
  pen.fillStyle = soft;
  for (const [step, loss] of history) pen.fillRect(x(step) - 1, y(loss) - 1, 2, 2);
  // Mean of the losses so far, the newest with the largest weights.
  pen.strokeStyle = ink;
  pen.lineWidth = 2;
  pen.beginPath();
  let mean = losses[0];
  history.forEach(([step, loss], i) => {
    mean += (loss - mean) * Math.max(0.1, 1 / (i + 1));
    if (i === 0) pen.moveTo(x(step), y(mean)); else pen.lineTo(x(step), y(mean));
  });
  pen.stroke();
}

// An image of 8 × 8 pixels with what the network takes it for.
function picture({ pixels, label, guess }) {
  const figure = document.createElement("figure"), canvas = document.createElement("canvas"), caption = document.createElement("figcaption");
  const side = Math.sqrt(pixels.length);
  canvas.width = canvas.height = side;
  const pen = canvas.getContext("2d"), image = pen.createImageData(side, side);
  pixels.forEach((value, i) => { image.data.set([0, 1, 2].map(() => 255 - 255 * value).concat(255), 4 * i); });
  pen.putImageData(image, 0, 0);
  caption.textContent = guess === label ? guess : `${guess}, not ${label}`;
  figure.className = guess === label ? "right" : "wrong";
  figure.append(canvas, caption);
  return figure;
}

const heard = {
  recalled(kept) {
    if (!kept || state !== "none") return;
    enter("kept");
    // Later, what was said and chosen since is of more use.
    if (find("#verdict").textContent !== CHOOSE) return;
    form.elements.task.value = kept.settings.task;
    for (const [name, value] of Object.entries(kept.settings)) if (name !== "task" && name !== "file") form.elements[name].value = value;
    follow();
    say(`A run is kept in this browser, up to step ${plain(kept.steps)}.`);
  },
  opened({ gpu, limits, planned, created, table, steps, total: all, history: losses }) {
    [history, total] = [losses, all];
    find("#gpu").textContent = limits.replace(/^unnamed GPU/, gpu || "unnamed GPU");
    find("#planned").textContent = `${plain(planned)} bytes`;
    find("#created").textContent = `${plain(created)} bytes`;
    find("#table pre").textContent = table;
    for (const id of ["#curve", "#facts", "#table"]) find(id).hidden = false;
    enter("running");
    say(`Step ${plain(steps)} of ${plain(total)}.`);
    redraw();
  },
  at({ made, loss, samples_per_s }) {
    if (loss !== undefined) history.push([made, loss]);
    say(`Step ${plain(made)} of ${plain(total)}${loss === undefined ? "" : `, loss ${loss.toFixed(4)}`}.`);
    if (samples_per_s) find("#speed").textContent = `${plain(Math.round(samples_per_s))} samples/s`;
    redraw();
  },
  measured(words) { find("#measured").textContent = words; },
  images(list) {
    find("#images").hidden = false;
    find("#images div").replaceChildren(...list.map(picture));
  },
  written(words) {
    find("#written").hidden = false;
    find("#written pre").textContent = words.trim();
  },
  rested({ steps, total }) {
    enter(steps < total ? "resting" : "done");
    say(steps < total ? `Paused after step ${plain(steps)} of ${plain(total)}.` : `Done: ${plain(steps)} steps.`);
  },
  saved(bytes) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
    link.download = `${form.elements.task.value}.safetensors`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  },
  checked({ operations, graphs, worst_error: worst, failures }) {
    enter("none");
    const all = `${operations} operations and ${graphs} random networks, with their gradients`;
    if (failures.length) say(`${failures.length} of ${all}, are wrong on this GPU:\n${failures.join("\n")}`, "error");
    else say(`${all}, agree with 64-bit arithmetic on this GPU; the largest difference is ${worst.toFixed(2)} of what rounding explains.`);
    worker.postMessage({ recall: true });
  },
  warned(words) { say(words, "error"); },
  failed({ words, lost }) {
    if (lost) { worker.terminate(); start(); }
    enter("none");
    say(words, "error");
    worker.postMessage({ recall: true });
  },
};

let worker;
function start() {
  worker = new Worker("trainer.js", { type: "module" });
  worker.onmessage = ({ data }) => { for (const [what, value] of Object.entries(data)) heard[what](value); };
  // One that cannot be loaded is not started again.
  worker.onerror = event => heard.failed({ words: event.message || "the program could not be loaded", lost: state !== "none" });
}
start();

form.onsubmit = event => {
  event.preventDefault();
  const [file, own] = [loaded, form.elements.task.value === "char_gpt" ? text : undefined];
  loaded = undefined;
  open({ open: { settings: { ...settings(), ...(file && { file: file.name }) }, text: own, file: file?.bytes } });
};
find("#pause").onclick = () => {
  if (state === "running") { enter("pausing"); worker.postMessage({ pause: true }); return; }
  if (state === "kept") { open({ resume: true }); return; }
  enter("running");
  worker.postMessage({ go: true });
};
find("#save").onclick = () => worker.postMessage({ save: true });
find("#check").onclick = () => {
  enter("opening");
  say("Checking the GPU, which takes a minute.");
  worker.postMessage({ check: { graphs: 20, seed: 0 } });
};
find("#load").onclick = () => find("#file").click();

async function take(file) {
  if (file.name.endsWith(".safetensors")) {
    loaded = { name: file.name, bytes: new Uint8Array(await file.arrayBuffer()) };
    say(`${file.name} is read: "Train" goes on from it, with the settings that it was saved with.`);
    enter("none");
    return;
  }
  text = await file.text();
  form.elements.task.value = "char_gpt";
  follow();
  say(`${file.name}: ${plain(text.length)} characters.`);
}
for (const id of ["#file", "#text"]) find(id).onchange = ({ target }) => { if (target.files[0]) take(target.files[0]); };
document.ondragover = event => { event.preventDefault(); document.body.classList.add("drop"); };
document.ondragleave = () => document.body.classList.remove("drop");
document.ondrop = event => {
  event.preventDefault();
  document.body.classList.remove("drop");
  if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
};
form.elements.task.oninput = follow;
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
follow();
enter("none");
say(CHOOSE);
worker.postMessage({ recall: true });

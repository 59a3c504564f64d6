// What a person does on the page: chooses, types, drags, applies each proposal, drops a file, reloads, and is told of mistakes.
const frame = document.getElementById("frame"), wait = ms => new Promise(done => setTimeout(done, ms));
const page = () => frame.contentDocument, find = selector => page().querySelector(selector);
const verdict = () => find("#verdict").textContent, control = name => find(`[name=${name}]`);
async function until(what, holds) {
  for (let i = 0; i < 4000; i += 1) { if (page() && holds()) return; await wait(10); }
  throw new Error(`no ${what}: ${verdict()}`);
}
async function load(url) {
  frame.src = "about:blank";
  await wait(50);
  frame.src = url;
  await until("page", () => frame.contentWindow.location.pathname === "/index.html" && find("#verdict")?.textContent.includes("batch"));
}
function put(control, value) {
  if (control.type === "checkbox") control.checked = value; else control.value = value;
  control.dispatchEvent(new frame.contentWindow.Event("input", { bubbles: true }));
}
const idle = () => find("#searching").hidden && !find("#answer").classList.contains("stale");
const bytes = () => frame.contentWindow.eval("plans[0].top");
const drawn = () => {
  const canvas = find("section.open canvas"), pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
};
const said = {};
await load("/index.html");
said.first = [verdict(), drawn()];
put(control("model"), "cnn");
await until("cnn", () => verdict().includes("cnn, batch 32"));
put(find("#slide"), "64");
await until("batch 64", () => verdict().includes("batch 64"));
said.typed = control("batch").value;
said.dragged = bytes();
put(control("budget"), "3MB");
await until("levers", () => !find("#levers").hidden && idle());
said.over = [verdict(), find("#verdict").className, find("#levers caption").textContent];
const link = frame.contentWindow.location.hash;
said.link = link;
async function proposals(link) {
  await load("/index.html?" + Math.random() + link);
  await until("levers again", () => !find("#levers").hidden && idle());
  return [...page().querySelectorAll("#levers button")];
}
async function apply(link, change) {
  const button = (await proposals(link)).find(button => button.dataset.change === change);
  const row = button.closest("tr"), promised = row.cells[2].textContent, name = row.className;
  button.click();
  await until(change, idle);
  return [change, promised, find("#verdict strong").textContent, name];
}
said.applied = [];
for (const change of (await proposals(link)).map(button => button.dataset.change)) said.applied.push(await apply(link, change));
said.frozen = await apply("#model=llama-tiny&batch=1&seq=32&lora=r=8&budget=30MB", "frozen-weights nf4");
await load("/index.html?again" + link);
said.recalled = [control("model").value, control("batch").value, control("budget").value];
put(control("accumulate"), "7");
await until("error", () => find("#verdict").className === "error");
said.mistake = verdict();
put(control("accumulate"), "");
await until("plan", () => find("#verdict").className !== "error");
find("[data-tab=tensors]").click();
said.rows = page().querySelectorAll("#list tbody tr").length;
said.hidden = [];
const drop = files => {
  const data = new frame.contentWindow.DataTransfer();
  for (const [name, bytes] of files) data.items.add(new frame.contentWindow.File([bytes], name));
  page().body.dispatchEvent(new frame.contentWindow.DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
};
for (const name of ["network.onnx", "config.json"]) {
  // Weights beside it are left alone.
  drop([["model.safetensors", "weights"], [name, await (await fetch(name)).arrayBuffer()]]);
  await until(name, () => verdict().includes(name + ", batch"));
  said.hidden.push([name, control("seq").closest("label").hidden, control("image").closest("label").hidden]);
}
drop([["model.safetensors", "weights"]]);
said.weights = verdict();
find("button[type=reset]").click();
await until("reset", () => verdict().includes("resnet50, batch 32") && idle());
said.reset = frame.contentWindow.location.hash;
put(control("model"), "digits");
put(find("#slide"), "128");
await until("digits", () => verdict().includes("digits, batch 128") && idle());
find("#times summary").click();
await until("times", () => find("#times tr") && idle());
said.cards = [...page().querySelectorAll("#times tr")].map(row => row.cells[0].textContent);
said.table = find("#text pre").textContent;
tell(said);

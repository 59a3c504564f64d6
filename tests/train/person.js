// What a person does on the page that trains: trains, pauses, closes the tab, goes on, saves, loads a damaged file and the saved one.
const frame = document.getElementById("frame"), wait = ms => new Promise(done => setTimeout(done, ms));
const find = selector => frame.contentDocument.querySelector(selector), verdict = () => find("#verdict").textContent;
async function until(words) {
  for (let i = 0; i < 20000; i += 1) { if (find("#verdict") && verdict().startsWith(words)) return; await wait(10); }
  throw new Error(`no "${words}": ${verdict()}`);
}
async function load(words) {
  frame.src = "about:blank";
  await wait(50);
  frame.src = "/train.html?" + Math.random();
  await until(words);
}
function drop(name, bytes) {
  const data = new frame.contentWindow.DataTransfer();
  data.items.add(new frame.contentWindow.File([bytes], name));
  frame.contentDocument.dispatchEvent(new frame.contentWindow.DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}
async function save() {
  const { URL } = frame.contentWindow, create = URL.createObjectURL;
  let blob;
  URL.createObjectURL = made => { blob = made; return create.call(URL, made); };
  find("#save").click();
  while (!blob) await wait(10);
  return new Uint8Array(await blob.arrayBuffer());
}
const facts = () => Object.fromEntries(["gpu", "planned", "created", "speed", "measured"].map(id => [id, find("#" + id).textContent]));
const colours = () => {
  const canvas = find("#curve canvas"), pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return new Set(new Uint32Array(pixels.buffer)).size;
};
const said = {};
await load("Choose");
// Long enough that a slow page can pause it.
find("[name=epochs]").value = "12";
find("#start").click();
while (!find("#images figure")) { if (find("#verdict").className === "error") throw new Error(verdict()); await wait(10); }
find("#pause").click();
await until("Paused");
said.paused = verdict();
said.images = [...find("#images").querySelectorAll("figcaption")].map(caption => caption.textContent);
await load("A run is kept");
said.kept = [verdict(), find("[name=epochs]").value, find("[name=task]").value];
find("#pause").click();
await until("Done");
said.done = verdict();
said.facts = facts();
said.table = find("#table pre").textContent;
said.colours = colours();
const file = await save();
said.file = [...file];
drop("damaged.safetensors", file.slice(0, 999));
await until("damaged.safetensors is read");
find("#start").click();
while (find("#verdict").className !== "error") await wait(10);
said.damaged = verdict();
drop("own.safetensors", file);
await until("own.safetensors is read");
find("[name=epochs]").value = "13";
find("#start").click();
await until("Done");
said.longer = verdict();
find("[name=epochs]").value = "60";
find("#start").click();
// Past the first epoch of 45 steps, which is kept.
while (!(Number(verdict().match(/^Step ([\d,]+)/)?.[1].replace(",", "")) > 60)) await wait(5);
await fetch("/lose");
while (find("#verdict").className !== "error") await wait(10);
said.lost = verdict();
while (find("#pause").textContent !== "Go on") await wait(10);
find("#pause").click();
while (!/^Step (9\d\d|\d,)/.test(verdict())) await wait(5);
find("#pause").click();
await until("Paused");
said.again = [verdict(), facts().created];
drop("own.txt", "a text that is too short");
await until("own.txt");
find("#start").click();
while (find("#verdict").className !== "error") await wait(10);
said.short = [find("[name=task]").value, verdict()];
tell(said);

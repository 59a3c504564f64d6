// Trains in a thread of its own. The run is kept in the browser's private files after each epoch and pause.
import init, { Training, check } from "./wgrad_web.js";
import { isPanic } from "./panics.js";

// One file, so that what is in it belongs together: the length of a JSON text, the text, and the safetensors file.
const FILE = "run";
// Images shown, and characters written, after each epoch.
const IMAGES = 40, WRITTEN = 200;

const ready = init();
let run, kept, running = false;

const folder = () => navigator.storage.getDirectory();

async function keep() {
  const weights = await run.save();
  kept.steps = run.steps;
  const state = new TextEncoder().encode(JSON.stringify(kept));
  try {
    const writer = await (await (await folder()).getFileHandle(FILE, { create: true })).createWritable();
    await writer.write(new Blob([new Uint32Array([state.length]), state, weights]));
    // Only now does the file change, as a whole.
    await writer.close();
  } catch (error) {
    postMessage({ warned: `this browser keeps no files, so the run ends with the tab (${error.message}); save a file instead` });
  }
}

// Returns what is kept of a run, if there is one: its settings, text and losses, and with `all` its file.
async function recall(all) {
  let file;
  try {
    file = await (await (await folder()).getFileHandle(FILE)).getFile();
  } catch {
    return undefined;
  }
  if (file.size < 4) return undefined;
  const [length] = new Uint32Array(await file.slice(0, 4).arrayBuffer());
  const state = JSON.parse(await file.slice(4, 4 + length).text());
  return all ? { ...state, file: new Uint8Array(await file.slice(4 + length).arrayBuffer()) } : { ...state, text: undefined };
}

async function dataOf(settings, text) {
  if (settings.task === "char_gpt") return text ?? (await answer("text.txt")).text();
  const packed = await answer("digits.csv.gz");
  return new Response(packed.body.pipeThrough(new DecompressionStream("gzip"))).text();
}

async function answer(name) {
  const found = await fetch(name);
  if (!found.ok) throw new Error(`${name}: the server answers ${found.status}`);
  return found;
}

// The name that the browser tells of the GPU, which is often no more than its maker.
async function name() {
  const { description, vendor, architecture } = (await navigator.gpu?.requestAdapter())?.info ?? {};
  return description || [vendor, architecture].filter(Boolean).join(" ");
}

async function open({ settings, text, file, history = [] }) {
  await ready;
  run?.free();
  run = undefined;
  const data = await dataOf(settings, text);
  run = await Training.open(settings, data, file);
  kept = { settings, text, history: history.filter(([step]) => step <= run.steps) };
  postMessage({ opened: { settings, gpu: await name(), limits: run.adapter, planned: run.planned, created: run.created, table: run.table,
    steps: run.steps, total: run.total, history: kept.history } });
}

async function show() {
  if (kept.settings.task === "char_gpt") postMessage({ written: await run.write("\n", WRITTEN, 0.7) });
  else postMessage({ images: await run.guesses(IMAGES) });
}

async function train() {
  running = true;
  while (running) {
    let step = run.steps;
    const epoch = await run.run(at => {
      step += 1;
      if (at.loss !== undefined) kept.history.push([step, at.loss]);
      postMessage({ at: { ...at, made: step } });
    });
    if (epoch) {
      const metric = Object.keys(epoch).find(key => key !== "epoch" && key !== "loss");
      postMessage({ measured: metric === "accuracy" ? `accuracy ${(100 * epoch[metric]).toFixed(2)} %` : `${epoch[metric].toFixed(4)} ${metric}` });
    }
    await keep();
    await show();
    running &&= run.steps < run.total;
  }
  postMessage({ rested: { steps: run.steps, total: run.total } });
}

async function asked(data) {
  if (data.recall) { postMessage({ recalled: await recall() }); return; }
  if (data.pause) { running = false; run?.pause(); return; }
  if (data.check) {
    await ready;
    postMessage({ checked: await check(data.check.graphs, data.check.seed) });
    return;
  }
  if (data.save) { postMessage({ saved: await run.save() }); return; }
  if (data.open) await open(data.open);
  if (data.resume) {
    const state = await recall(true);
    if (!state) throw new Error("no run is kept in this browser any more");
    await open({ ...state, settings: { ...state.settings, file: "the kept run" } });
  }
  await train();
}

onmessage = async ({ data }) => {
  try {
    await asked(data);
  } catch (error) {
    running = false;
    postMessage({ failed: { words: String(error.message ?? error), lost: isPanic(error) } });
  }
};

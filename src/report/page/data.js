"use strict";
// The plans of this page, and the numbers computed from their rectangles.
let data = { classes: [], words: [], plans: [] }, plans = [];

function bytes(n) {
  const units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  if (n < 1024) return n + " B";
  let value = n / 1024, unit = 0;
  while (value >= 1023.95 && unit + 1 < units.length) { value /= 1024; unit += 1; }
  // Ties go to the even digit, as in the tables of the command line.
  const tenths = value * 10, below = Math.floor(tenths);
  const rounded = tenths - below === 0.5 ? below + below % 2 : Math.round(tenths);
  return (rounded / 10).toFixed(1) + " " + units[unit];
}

function unpack(plan) {
  const blocks = plan.blocks.map(b => {
    const layer = data.words[b[4]];
    return { name: b[0].startsWith(".") ? layer + b[0] : b[0], shape: data.words[b[1]], dtype: data.words[b[2]],
      class: b[3], layer, op: data.words[b[5]], bytes: b[6], from: b[7], until: b[8], address: b[9],
      arena: plan.arenas[b[10]], again: b[11] === 1, cost: b[6] * (b[8] - b[7]) };
  });
  const alive = data.classes.map(() => new Float64Array(plan.end + 1));
  for (const b of blocks) { alive[b.class][b.from] += b.bytes; alive[b.class][b.until] -= b.bytes; }
  const live = new Float64Array(plan.end);
  for (const of of alive) {
    for (let t = 0; t < plan.end; t += 1) { if (t > 0) of[t] += of[t - 1]; live[t] += of[t]; }
  }
  let peak = 0;
  live.forEach((n, t) => { if (n > live[peak]) peak = t; });
  const top = blocks.reduce((most, b) => Math.max(most, b.address + b.bytes), 0);
  return { ...plan, blocks, alive, live, peak, top };
}

function load(given) {
  data = given;
  plans = data.plans.map(unpack);
}

function operation(plan, t) {
  const [op, layer, phase] = plan.operations[t].map(i => data.words[i]);
  return op + " (" + phase + ")" + (layer ? " in " + layer : "");
}

function figures() {
  const body = document.querySelector("#figures tbody");
  body.replaceChildren();
  for (const plan of plans) {
    const again = plan.blocks.filter(b => b.again);
    const recomputed = again.reduce((sum, b) => sum + b.bytes, 0);
    const row = body.insertRow();
    row.dataset.plan = plan.name;
    const cell = (text, name, value) => {
      const td = row.insertCell();
      td.textContent = text;
      if (name) td.dataset[name] = value;
      return td;
    };
    cell(plan.name);
    cell(bytes(plan.top), "bytes", plan.top);
    cell(bytes(plan.live[plan.peak]), "live", plan.live[plan.peak]);
    cell(operation(plan, plan.peak) + ", operation " + (plan.peak + 1) + " of " + plan.end, "position", plan.peak).className = "text";
    cell(String(plan.blocks.length), "tensors", plan.blocks.length);
    cell(again.length ? again.length + ", " + bytes(recomputed) : "none", "again", recomputed);
  }
}

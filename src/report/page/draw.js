// Draws the canvases: each tensor as a rectangle, and bytes alive stacked by class.
const LEFT = 76, RIGHT = 12, TOP = 40, BOTTOM = 52;

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

// A tile of 8 × 8 as a canvas pattern; `fill` may be empty.
function tile(context, fill, path, pen, opacity) {
  const small = document.createElement("canvas"), scale = devicePixelRatio || 1;
  small.width = small.height = Math.round(8 * scale);
  const c = small.getContext("2d");
  c.scale(small.width / 8, small.width / 8);
  if (fill) { c.fillStyle = fill; c.fillRect(0, 0, 8, 8); }
  c.globalAlpha = opacity;
  c.strokeStyle = pen;
  c.stroke(new Path2D(path));
  const pattern = context.createPattern(small, "repeat");
  pattern.setTransform(new DOMMatrix().scale(8 / small.width));
  return pattern;
}

function fills(context) {
  return {
    classes: data.classes.map(k => tile(context, k.fill, k.pattern, k.pen, 0.5)),
    again: tile(context, "", data.again, "#000", 0.6),
    hole: tile(context, "", "M-1 9L9 -1", colour("--hatch"), 1),
  };
}

// The canvas's context at the screen's resolution, and its size.
function open(canvas) {
  const scale = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  canvas.width = Math.round(w * scale);
  canvas.height = Math.round(h * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = "12px system-ui, sans-serif";
  return { context, w, h };
}

function frame(plan, w, h, most) {
  const wide = w - LEFT - RIGHT, high = h - TOP - BOTTOM;
  return {
    right: w - RIGHT, floor: h - BOTTOM,
    x: t => LEFT + wide * t / plan.end,
    y: n => h - BOTTOM - high * n / most,
    time: x => Math.floor((x - LEFT) / wide * plan.end),
    address: y => (h - BOTTOM - y) / high * most,
  };
}

// Multiples of a power of two that print exactly, as on the axes of the SVG pictures.
function ticks(most) {
  const unit = 1024 ** Math.floor(Math.log2(Math.max(most, 1)) / 10);
  const step = Math.max(2 ** Math.floor(Math.log2(Math.max(most / 4, 1))), unit / 2, 1);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

function axes(context, f, most) {
  context.textAlign = "end";
  for (const n of ticks(most)) {
    const y = f.y(n);
    context.fillStyle = colour("--rule");
    context.fillRect(LEFT, y, f.right - LEFT, 1);
    context.fillStyle = colour("--soft");
    context.fillText(bytes(n), LEFT - 6, y + 4);
  }
}

function bands(context, f, list, y) {
  context.textAlign = "center";
  list.forEach(([word, from, until], i) => {
    const x = f.x(from), w = f.x(until) - x, name = data.words[word];
    context.fillStyle = colour(i % 2 ? "--odd" : "--even");
    context.fillRect(x, y, w, 14);
    if (context.measureText(name).width + 4 < w) {
      context.fillStyle = colour("--ink");
      context.fillText(name, x + w / 2, y + 11);
    }
  });
}

function under(context, f, plan) {
  bands(context, f, plan.phases, f.floor + 6);
  bands(context, f, plan.layers, f.floor + 23);
  context.textAlign = "center";
  context.fillStyle = colour("--soft");
  context.fillText("operations in their order", (LEFT + f.right) / 2, f.floor + 49);
}

function line(context, f, plan) {
  const path = new Path2D();
  path.moveTo(f.x(0), f.y(plan.live[0]));
  plan.live.forEach((n, t) => { path.lineTo(f.x(t), f.y(n)); path.lineTo(f.x(t + 1), f.y(n)); });
  context.globalAlpha = 0.8;
  context.strokeStyle = colour("--paper");
  context.lineWidth = 4;
  context.stroke(path);
  context.globalAlpha = 1;
  context.strokeStyle = colour("--ink");
  context.lineWidth = 1.6;
  context.stroke(path);
}

function peak(context, f, plan, narrow) {
  const x = (f.x(plan.peak) + f.x(plan.peak + 1)) / 2, y = f.y(plan.live[plan.peak]);
  context.strokeStyle = colour("--ink");
  context.lineWidth = 1;
  context.setLineDash([5, 3]);
  context.stroke(new Path2D(`M${LEFT} ${y}H${f.right}M${x} ${TOP - 10}V${f.floor}`));
  context.setLineDash([]);
  context.fillStyle = colour("--ink");
  context.beginPath();
  context.arc(x, y, 4, 0, 7);
  context.fill();
  const most = bytes(plan.live[plan.peak]);
  const whole = `peak and lower bound ${most} at ${operation(plan, plan.peak)}`;
  const told = narrow || context.measureText(whole).width > f.right - LEFT ? "peak " + most : whole;
  const wide = context.measureText(told).width;
  context.textAlign = "start";
  context.fillText(told, Math.max(LEFT, Math.min(x - 4, f.right - wide)), TOP - 15);
}

// The bytes that a plan may need, as a line across the picture.
function limit(context, f, plan) {
  const y = f.y(plan.limit.bytes), over = plan.top > plan.limit.bytes;
  context.strokeStyle = context.fillStyle = colour(over ? "--over" : "--within");
  context.lineWidth = 2;
  context.stroke(new Path2D(`M${LEFT} ${y}H${f.right}`));
  context.textAlign = "end";
  context.lineWidth = 3;
  context.strokeStyle = colour("--paper");
  context.strokeText(plan.limit.name, f.right - 6, y + 15);
  context.fillText(plan.limit.name, f.right - 6, y + 15);
}

function drawMemory(canvas, plan, most, narrow) {
  const { context, w, h } = open(canvas), f = frame(plan, w, h, most), fill = fills(context);
  axes(context, f, most);
  context.fillStyle = fill.hole;
  context.fillRect(LEFT, f.y(plan.top), f.right - LEFT, f.floor - f.y(plan.top));
  const box = b => [f.x(b.from), f.y(b.address + b.bytes), f.x(b.until) - f.x(b.from), b.bytes / most * (h - TOP - BOTTOM)];
  context.strokeStyle = colour("--paper");
  context.lineWidth = 0.5;
  for (const b of plan.blocks) {
    const [x, y, bw, bh] = box(b);
    context.fillStyle = fill.classes[b.class];
    context.fillRect(x, y, bw, Math.max(bh, 0.05));
    if (b.again) { context.fillStyle = fill.again; context.fillRect(x, y, bw, bh); }
    if (bh > 3 && bw > 1.5) context.strokeRect(x, y, bw, bh);
  }
  under(context, f, plan);
  line(context, f, plan);
  context.textAlign = "start";
  context.lineJoin = "round";
  for (const b of plan.blocks) {
    const [x, y, bw, bh] = box(b), look = data.classes[b.class];
    if (bh > 13 && bw > 30 && context.measureText(b.name).width + 8 < bw) {
      context.lineWidth = 3;
      context.strokeStyle = look.fill;
      context.strokeText(b.name, x + 5, y + bh / 2 + 4);
      context.fillStyle = look.pen;
      context.fillText(b.name, x + 5, y + bh / 2 + 4);
    }
  }
  peak(context, f, plan, narrow);
  if (plan.limit) limit(context, f, plan);
  canvas.find = (x, y) => {
    const t = f.time(x), at = f.address(y);
    const b = plan.blocks.find(b => b.from <= t && t < b.until && b.address <= at && at < b.address + b.bytes);
    return b && { box: box(b), text: tell(b) };
  };
}

function tell(b) {
  const place = `${b.arena.name}, offset ${b.address - b.arena.base}`;
  return `${b.name}\n${b.shape} ${b.dtype}, ${bytes(b.bytes)}\n${data.classes[b.class].name}`
    + (b.layer ? `, layer ${b.layer}` : "") + (b.op ? `, by ${b.op}` : "")
    + `\noperations ${b.from} to ${b.until - 1}\n${place}\n`
    + (b.again ? "computed again in the backward pass" : "computed once");
}

function drawLive(canvas, plan, most, narrow) {
  const { context, w, h } = open(canvas), f = frame(plan, w, h, most), fill = fills(context);
  axes(context, f, most);
  const base = new Float64Array(plan.end);
  data.classes.forEach((_, i) => {
    const path = new Path2D();
    path.moveTo(f.x(0), f.y(base[0]));
    for (let t = 0; t < plan.end; t += 1) {
      const n = base[t] + plan.alive[i][t];
      path.lineTo(f.x(t), f.y(n));
      path.lineTo(f.x(t + 1), f.y(n));
    }
    for (let t = plan.end - 1; t >= 0; t -= 1) {
      path.lineTo(f.x(t + 1), f.y(base[t]));
      path.lineTo(f.x(t), f.y(base[t]));
      base[t] += plan.alive[i][t];
    }
    context.fillStyle = fill.classes[i];
    context.fill(path);
  });
  under(context, f, plan);
  line(context, f, plan);
  peak(context, f, plan, narrow);
  canvas.find = (x, y) => {
    const t = f.time(x);
    if (t < 0 || t >= plan.end || y > f.floor || y < TOP) return null;
    const each = data.classes.map((k, i) => `${k.name} ${bytes(plan.alive[i][t])}`).join("\n");
    const text = `operation ${t}: ${operation(plan, t)}\n${bytes(plan.live[t])} alive\n${each}`;
    return { box: [f.x(t), TOP, f.x(t + 1) - f.x(t), f.floor - TOP], text };
  };
}

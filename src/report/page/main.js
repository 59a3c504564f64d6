// Tabs, tooltips, and the table.
const COLUMNS = [
  ["name", b => b.name, 1], ["shape", b => b.shape, 1], ["type", b => b.dtype, 1],
  ["class", b => data.classes[b.class].name, 1], ["layer", b => b.layer, 1], ["bytes", b => b.bytes, 0],
  ["born", b => b.from, 0], ["dies", b => b.until - 1, 0], ["bytes × lifetime", b => b.cost, 0],
  ["computed again", b => (b.again ? "again" : ""), 1], ["arena", b => b.arena.name, 1],
  ["offset", b => b.address - b.arena.base, 0],
];
const state = { tab: "memory", plan: 0, together: false, sort: 8, down: true };
const element = id => document.getElementById(id);

function legend() {
  const box = (name, fill, path, pen) => `<span><svg viewBox="0 0 16 16"><rect width="16" height="16" fill="${fill}"/>`
    + `<g stroke="${pen}" stroke-opacity=".6" fill="none"><path d="${path}"/><path d="${path}" transform="translate(8)"/>`
    + `<path d="${path}" transform="translate(0 8)"/><path d="${path}" transform="translate(8 8)"/></g></svg>${name}</span>`;
  const again = plans.some(p => p.blocks.some(b => b.again));
  element("legend").innerHTML = data.classes.map(k => box(k.name, k.fill, k.pattern, k.pen)).join("")
    + (again ? box("computed again", data.classes[3].fill, data.again, "#000") : "")
    + box("hole", "none", "M-1 9L9 -1", "var(--soft)");
}

function chosen() { return state.together ? plans : [plans[state.plan]]; }

function pictures() {
  const section = element(state.tab), draw = state.tab === "memory" ? drawMemory : drawLive;
  section.replaceChildren();
  const list = chosen();
  const height = p => (state.tab === "memory" ? Math.max(p.top, p.limit ? p.limit.bytes * 1.02 : 0) : p.live[p.peak] * 1.02);
  const most = Math.max(1, ...list.map(height));
  for (const plan of list) {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    caption.textContent = `${plan.name}: ${bytes(plan.top)}, most alive at once ${bytes(plan.live[plan.peak])}`;
    figure.append(caption, canvas);
    section.append(figure);
    canvas.plan = plan;
  }
  for (const canvas of section.querySelectorAll("canvas")) {
    draw(canvas, canvas.plan, most, list.length > 1);
    canvas.addEventListener("mousemove", hover);
    canvas.addEventListener("mouseleave", () => { element("tip").hidden = element("mark").hidden = true; });
  }
}

function hover(event) {
  const found = event.target.find(event.offsetX, event.offsetY), tip = element("tip"), mark = element("mark");
  tip.hidden = mark.hidden = !found;
  if (!found) return;
  const [x, y, w, h] = found.box, at = event.target.getBoundingClientRect();
  mark.style.cssText = `left:${at.left + x}px;top:${at.top + y}px;width:${w}px;height:${Math.max(h, 1)}px`;
  tip.textContent = found.text;
  const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
  tip.style.cssText = `left:${Math.max(0, left)}px;top:${Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 4)}px`;
}

function table() {
  const head = element("list").tHead, body = element("list").tBodies[0], key = COLUMNS[state.sort][1];
  head.innerHTML = "<tr>" + COLUMNS.map(([name, , text], i) => `<th class="${text ? "text" : ""}" data-column="${i}"`
    + (i === state.sort ? ` aria-sort="${state.down ? "descending" : "ascending"}"` : "") + `>${name}</th>`).join("") + "</tr>";
  const wanted = element("find").value.toLowerCase(), plan = plans[state.plan];
  const fits = b => (b.name + " " + b.layer + " " + data.classes[b.class].name).toLowerCase().includes(wanted);
  const rows = plan.blocks.filter(fits), sign = state.down ? -1 : 1;
  rows.sort((a, b) => { const x = key(a), y = key(b); return x < y ? -sign : x > y ? sign : 0; });
  element("found").textContent = `${rows.length} of ${plan.blocks.length} tensors of ${plan.name}`;
  body.replaceChildren();
  for (const b of rows) {
    const row = body.insertRow();
    row.dataset.bytes = b.bytes;
    COLUMNS.forEach(([name, value, text]) => {
      const cell = row.insertCell();
      cell.textContent = name === "bytes" ? bytes(b.bytes) : name.startsWith("bytes ×") ? b.cost.toPrecision(3) : value(b);
      if (text) cell.className = "text";
    });
  }
}

function show() {
  for (const button of element("tabs").children) button.setAttribute("aria-selected", button.dataset.tab === state.tab);
  for (const button of element("plans").children) {
    const pressed = button.dataset.plan === "all" ? state.together : !state.together && +button.dataset.plan === state.plan;
    button.setAttribute("aria-pressed", pressed);
    button.hidden = button.dataset.plan === "all" && state.tab === "tensors";
  }
  for (const section of document.querySelectorAll("section")) section.classList.toggle("open", section.id === state.tab);
  element("legend").hidden = state.tab === "tensors";
  if (state.tab === "tensors") table(); else pictures();
}

// Shows other plans, the last of them first.
function renew(given) {
  load(given);
  state.plan = plans.length - 1;
  state.together = state.together && plans.length > 1;
  figures();
  legend();
  element("plans").replaceChildren();
  const choices = plans.length < 2 ? [] : [...plans.map((p, i) => [p.name, i]), ["side by side", "all"]];
  for (const [name, plan] of choices) {
    const button = document.createElement("button");
    button.textContent = name;
    button.dataset.plan = plan;
    element("plans").append(button);
  }
  show();
}

function listen() {
  element("tabs").addEventListener("click", e => { if (e.target.dataset.tab) { state.tab = e.target.dataset.tab; show(); } });
  element("plans").addEventListener("click", e => {
    const plan = e.target.dataset.plan;
    if (plan === undefined) return;
    state.together = plan === "all";
    if (!state.together) state.plan = +plan;
    show();
  });
  element("list").tHead.addEventListener("click", e => {
    const column = +e.target.dataset.column;
    state.down = column === state.sort ? !state.down : !COLUMNS[column][2];
    state.sort = column;
    table();
  });
  element("find").addEventListener("input", table);
  addEventListener("resize", show);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
}

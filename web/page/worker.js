// Plans in a thread of its own, so that the page stays responsive. A plan that nobody waits for ends with its worker.
import init, { choices, fixed_batch, models, plan, size } from "./wgrad_web.js";
import { isPanic } from "./panics.js";

const SETTINGS = ["optimizer", "limits", "card", "precision", "weights", "frozen_weights", "shard"];

// `budget` is compared with what the plan needs; in the settings, it makes the planner search for what fits.
function answer({ settings, file, what, budget, timed }) {
  if (what === "batch") return { batch: fixed_batch(file) };
  const room = budget && size(budget);
  const made = plan(settings, file, (task, share) => postMessage({ progress: { task, share } }));
  try {
    if (what === "html") return { html: made.html(), title: made.title };
    const { title, text } = made;
    return { title, text, report: made.report(), picture: made.picture(), times: timed ? made.times() : [], room };
  } finally {
    made.free();
  }
}

onmessage = async ({ data }) => {
  if (data.module) {
    await init({ module_or_path: data.module });
    const values = Object.fromEntries(SETTINGS.map(name => [name, choices(name)]));
    postMessage({ ready: { ...values, model: models() } });
    return;
  }
  try {
    postMessage({ done: answer(data) });
  } catch (error) {
    postMessage({ failed: String(error.message ?? error), lost: isPanic(error) });
  }
};

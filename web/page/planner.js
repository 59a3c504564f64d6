// A worker that answers the newest question. An older one that takes long is ended with its worker.
const PATIENCE_MS = 150;

export class Planner {
  #module; #worker; #ready; #asked; #next; #since = 0; #timer;

  constructor(module) {
    this.#module = module;
    this.#start();
  }

  // Settles once the worker has loaded, with the values that settings may have.
  get ready() { return this.#ready; }

  #start() {
    const worker = new Worker("worker.js", { type: "module" });
    this.#worker = worker;
    this.#ready = new Promise((resolve, reject) => {
      worker.onerror = event => reject(new Error(event.message || "the planner could not be loaded"));
      worker.onmessage = ({ data }) => {
        if (data.ready) resolve(data.ready); else this.#hear(data);
      };
    });
    worker.postMessage({ module: this.#module });
  }

  #hear(data) {
    const asked = this.#asked;
    if (data.progress) { asked?.progress?.(data.progress); return; }
    this.#asked = undefined;
    if (data.lost) { this.#worker.terminate(); this.#start(); }
    // An answer that a newer question has overtaken is of use while one drags, but a failure is not.
    if (data.done) asked.done(data.done, !this.#next); else if (!this.#next) asked.failed(data.failed);
    this.#send();
  }

  #send() {
    clearTimeout(this.#timer);
    if (!this.#next) return;
    const wait = this.#asked ? PATIENCE_MS - (performance.now() - this.#since) : 0;
    if (wait > 0) { this.#timer = setTimeout(() => this.#send(), wait); return; }
    if (this.#asked) { this.#worker.terminate(); this.#start(); }
    [this.#asked, this.#next] = [this.#next, undefined];
    this.#since = performance.now();
    this.#worker.postMessage(this.#asked.question);
  }

  // Asks a question; `done`, `failed` and `progress` are called with what the worker says of it, `done` also with whether the
  // question is still the newest.
  ask(question, { done, failed, progress }) {
    this.#next = { question, done, failed, progress };
    this.#send();
  }

  // Forgets what was asked.
  stop() {
    this.#next = undefined;
    clearTimeout(this.#timer);
    if (!this.#asked) return;
    this.#asked = undefined;
    this.#worker.terminate();
    this.#start();
  }
}

// Whether an error left the module's memory inconsistent, so that the page must start another worker.
export const isPanic = error =>
  !(error instanceof Error) || error instanceof WebAssembly.RuntimeError || /^an error in wgrad|32 bits/.test(error.message);

/** The options of `wgrad plan`, with `_` for `-`; docs/command-line.md describes them. What is absent has the default there. */
export interface Settings {
  /** A name of models(), or that of a file. */
  model: string;
  /** Samples per step. */
  batch?: number;
  /** Rows and columns of images, such as 224 or "416x608". */
  image?: number | string;
  classes?: number;
  /** Tokens in a sequence. */
  seq?: number;
  optimizer?: string;
  /** The bytes that a session may create, such as "8GB". A plan may need more: see `fits` and `levers` in the report. */
  budget?: string;
  /** Choose the cheapest plan within the budget. */
  fit?: boolean;
  /** Search for the longest sequence within the budget. */
  max_seq?: boolean;
  precision?: "f32" | "f16" | "bf16" | "int8" | "int4";
  weights?: "f32" | "f16" | "bf16";
  stochastic_rounding?: boolean;
  /** Patterns of the parameters that are not trained. */
  freeze?: string | string[];
  /** Adapters, such as "r=16,alpha=32,targets=q_proj+v_proj". */
  lora?: string;
  frozen_weights?: "f32" | "f16" | "bf16" | "int8" | "int4" | "nf4";
  limits?: string;
  recompute?: string;
  offload?: string;
  card?: string;
  accumulate?: number;
  ranks?: number;
  shard?: "none" | "optimizer" | "parameters";
  rebuild?: boolean;
  fuse?: boolean;
  bit_masks?: boolean;
  clip_norm?: number;
  loss_scale?: boolean;
  /** Open dimensions of an ONNX file: "NAME=LENGTH". */
  dim?: string | string[];
  /** The loss of an ONNX file: "auto", "cross-entropy", "mse" or "output:NAME". */
  loss?: string;
}

/** Bytes that a session creates. */
export interface DeviceBytes {
  total: number;
  arenas: number;
  uniforms: number;
  staging: number;
  readback: number;
  transfer: number;
  offload: number;
}

/** A change that saves bytes, such as "recompute auto". */
export interface Lever {
  name: string;
  peak_bytes: number;
  total_bytes: number;
  saved_bytes: number;
  /** Additional modelled time, as a fraction. */
  time_fraction: number;
  /** Whether the results keep their bits. */
  exact: boolean;
}

/** What `wgrad plan --json` prints; more keys than these are in docs/command-line.md. */
export interface Report {
  model: string;
  batch: number;
  parameters: number;
  trained_parameters: number;
  peak_bytes: number;
  naive_bytes: number;
  classes: Record<string, number>;
  device_bytes: DeviceBytes;
  recompute_time_fraction: number;
  step_seconds: number;
  hash: string;
  /** With a budget. */
  budget_bytes?: number;
  fits?: boolean;
  max_batch?: number | null;
  /** With `max_seq`: the most tokens in each sequence. */
  max_seq?: number | null;
  levers?: Lever[];
  cheapest?: { changes: string; total_bytes: number; time_fraction: number } | null;
  [key: string]: unknown;
}

export interface Time {
  card: string;
  modelled_ms: number;
}

/** A network that wgrad knows. */
export interface Known {
  name: string;
  takes: "vectors" | "images" | "tokens";
}

/** A packing of buffers: what `wgrad pack --json` prints, and the offset of each buffer. */
export interface Packed {
  buffers: number;
  lower_bound: number;
  height: number;
  ratio: number;
  optimal: boolean;
  method: string;
  seconds: number;
  offsets: number[];
}

/** What `wgrad replay --json` prints of a file. */
export interface Replayed {
  file: string;
  blocks: number;
  lower_bound_bytes: number;
  strategies: { strategy: string; peak_live: number; peak_reserved: number; ratio: number; [key: string]: unknown }[];
  [key: string]: unknown;
}

/** What `Training.open` trains, and how. What is absent has the default of the example of that name. */
export interface TrainSettings {
  task: "digits" | "cnn_digits" | "char_gpt";
  batch?: number;
  /** Of "digits" and "cnn_digits". */
  epochs?: number;
  /** Of "char_gpt", as are the next ones: rounded up to a multiple of 8. */
  steps?: number;
  /** Characters that the network sees. */
  context?: number;
  layers?: number;
  heads?: number;
  width?: number;
  rate?: number;
  /** The name of the file to go on from, for errors. */
  file?: string;
}

/** After a step. */
export interface StepReport {
  /** Counted from 0. */
  epoch: number;
  epochs: number;
  /** Steps made in this epoch, and steps of an epoch. */
  step: number;
  steps: number;
  /** The last loss that has arrived, which is that of a step or two before. */
  loss?: number;
  samples_per_s: number;
}

/** At the end of an epoch: the mean of its losses, and what was measured on data that the network never learns from. */
export interface EpochReport {
  epoch: number;
  loss: number;
  accuracy?: number;
  "nats per character"?: number;
}

/** What `check` found on a GPU. */
export interface Checked {
  adapter: string;
  /** Operations and random networks that were checked. */
  operations: number;
  graphs: number;
  /** The largest difference that is not a failure, in units of what rounding explains. */
  worst_error: number;
  failures: string[];
}

/** An image with its label, and what the network takes it for. */
export interface Guess {
  label: number;
  guess: number;
  pixels: Float32Array;
}

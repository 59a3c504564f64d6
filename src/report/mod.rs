//! Human-readable reports of plans and runs: tables and pictures. No device is needed.

mod answer;
mod estimate;
mod failure;
mod kept;
mod launches;
mod operations;
mod page;
mod palette;
mod passes;
mod picture;
mod request;
mod scene;
mod summary;
mod table;
mod tensors;
mod traces;

pub use answer::{Answer, Asked, Fitting, RankPlan, Trace};
pub use estimate::{Estimate, HEADROOM, LargestBatch};
pub use failure::Failure;
pub use kept::{Kept, kept, kept_bytes};
pub use launches::{launches, launches_json};
pub use operations::{
    ONNX_CONSTANTS, Operation, operations, operations_json, operations_markdown, operations_text,
};
pub use page::{page, page_data};
pub use passes::{passes, passes_json};
pub use picture::{Panel, picture};
pub use request::{Planned, Request, Source};
pub use summary::{LayerSummary, Summary};
pub use tensors::{TensorReport, tensors};
pub use traces::{TraceFile, contenders_named, pack, packing_json, replayed};

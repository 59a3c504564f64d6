//! A training step as a list of operations on named values. Nothing here depends on a device.

mod arithmetic;
mod arrange;
mod attention;
mod cost;
mod ctc;
mod custom;
mod distances;
mod draw;
mod edit;
mod einsum;
mod embedding_bag;
mod gates;
mod images;
mod infer;
mod infer_images;
mod infer_indices;
mod infer_rows;
mod ir;
mod lora;
mod losses;
mod movement;
mod op;
mod operators;
mod own_gradient;
mod params;
mod pooling;
mod reductions;
mod rope;
mod rows;
mod select;
mod statistics;
mod tensor;
mod trace;
mod volumes;
mod window;

pub use arrange::Padding;
pub use attention::Attention;
pub use cost::Cost;
#[cfg(feature = "internals")]
pub use custom::CustomKernel;
#[cfg(not(feature = "internals"))]
pub(crate) use custom::CustomKernel;
pub use custom::KernelCall;
pub use distances::{CrossEntropy, Reduce};
pub use embedding_bag::Bag;
pub use images::RunningStats;
pub(crate) use infer::{matmul as matmul_shape, whole_words};
pub use ir::Graph;
pub(crate) use ir::Piece;
#[cfg(feature = "internals")]
pub use ir::{
    Class, Exchange, ExchangeKind, FusedUpdate, GradientOf, Indices, LOSS_SCALE, Node, PartOf, Phase,
    STEP_SCALARS, Sharded, StepScalars, Value, ValueId,
};
#[cfg(not(feature = "internals"))]
pub(crate) use ir::{
    Class, Exchange, ExchangeKind, FusedUpdate, GradientOf, Indices, LOSS_SCALE, Node, PartOf, Phase,
    STEP_SCALARS, Sharded, StepScalars, Value, ValueId,
};
pub(crate) use lora::Adapter;
pub use lora::LoraConfig;
#[cfg(any(test, feature = "gpu"))]
pub(crate) use op::Domain;
#[cfg(not(feature = "internals"))]
pub(crate) use op::{
    Activation, Arg, Attend, AttendSizes, Averaging, Band, Binary, Counting, FusedElementwise, FusedOp,
    Gates, Kept, MAX_HEAD, MomentCodes, Op, Read, Reduction, Resample, RowNorm, Running, Saves, Share,
    Source, Stored, Unary, Update,
};
#[cfg(feature = "internals")]
pub use op::{
    Activation, Arg, Attend, AttendSizes, Averaging, Band, Binary, Counting, FusedElementwise, FusedOp,
    Gates, Kept, MAX_HEAD, MomentCodes, Op, Read, Reduction, Resample, RowNorm, Running, Saves, Share,
    Source, Stored, Unary, Update,
};
pub(crate) use op::{
    CORRECTION, Pair, Results, can_fuse, corrections, largest, only_reads, reads, sigmoid, special,
};
pub use op::{IGNORE, LossScale};
pub(crate) use own_gradient::OwnGradient;
pub use params::{Init, Param, ParamGroup, Params};
pub use rope::{Rope, RopeScaling};
pub use tensor::Tensor;
pub use trace::{Mode, Trace};
pub use window::Window;

//! The files that `wgrad plan` writes, and its table of layers; the error of files that cannot be used.

use std::path::{Path, PathBuf};

use wgrad::compile::Plan;
use wgrad::files;
use wgrad::memory::planner::write_problem;
use wgrad::report::{Panel, page, picture};
use wgrad::{Error, Result};

#[derive(clap::Args)]
#[group(skip)]
pub struct Options {
    /// Draw the plan, address over time, into this SVG file, next to the plan of the same step without any
    /// savings.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write an interactive page with the same picture, bytes by class, and all tensors into this HTML file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a memory snapshot of the step into this file, for <https://pytorch.org/memory_viz>.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Write the step's lifetimes and sizes into this CSV file, for `wgrad pack` and other planners.
    #[arg(long, value_name = "FILE")]
    export_problem: Option<PathBuf>,
    /// Print a table of layers: output shape, parameters, saved bytes, recomputed bytes, FLOPs.
    #[arg(long)]
    summary: bool,
    /// With --summary: group layers by this many components of their path.
    #[arg(long, value_name = "PARTS", requires = "summary")]
    depth: Option<usize>,
}

impl Options {
    /// Whether plans are drawn, which needs other plans for comparison.
    pub fn draws(&self) -> bool {
        self.svg.is_some() || self.html.is_some()
    }

    /// Draws plans side by side, the last one large.
    pub fn draw(&self, panels: &[Panel<'_>], title: &str) -> Result<()> {
        if let Some(path) = &self.svg {
            write(path, picture(panels, title).as_bytes())?;
        }
        if let Some(path) = &self.html {
            write(path, page(panels, title).as_bytes())?;
        }
        Ok(())
    }

    /// Writes the snapshot and the packing problem of a plan to their files.
    pub fn export(&self, plan: &Plan) -> Result<()> {
        if let Some(path) = &self.snapshot {
            write(path, &plan.dump().pickle())?;
        }
        if let Some(path) = &self.export_problem {
            let mut csv = Vec::new();
            write_problem(&plan.problem(), &mut csv).map_err(|e| unusable(path, &e))?;
            write(path, &csv)?;
        }
        Ok(())
    }

    /// Prints the table of layers if `--summary` is set; returns whether it is.
    pub fn summary(&self, plan: &Plan, json: bool) -> bool {
        if self.summary {
            let summary = self.depth.map_or_else(|| plan.summary(), |depth| plan.summary_to_depth(depth));
            if json {
                println!("{}", summary.json());
            } else {
                print!("{summary}");
            }
        }
        self.summary
    }
}

fn write(path: &Path, contents: &[u8]) -> Result<()> {
    files::write(path, contents).map_err(|e| unusable(path, &e))
}

/// The error of a file that cannot be read or written.
pub fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Data { what: path.display().to_string(), message: error.to_string() }
}

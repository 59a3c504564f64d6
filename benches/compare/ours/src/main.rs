//! Runs wgrad on the shared benchmark work.

use std::time::Instant;

use compare_shared::{BATCH, RATE, Who, Work};
use wgrad::device::Device;
use wgrad::exec::Session;
use wgrad::models::Model;
use wgrad::optim::Adam;
use wgrad::compile::PlanOptions;

fn main() -> wgrad::Result<()> {
    let start = Instant::now();
    let work = Work::of_arguments();
    let step = Model::named(&work.model, 0)?.train_step(BATCH)?;
    let device = Device::new()?;
    let optimizer = Adam { lr: RATE, ..Adam::default() }.into();
    let plan = step.plan(&PlanOptions { optimizer, ..PlanOptions::default() }, device.limits())?;
    let mut session = Session::new(&device, &plan)?;
    for (name, data) in &work.weights {
        session.set_parameter(name, data)?;
    }
    let bytes = session.device_bytes();
    let who = Who {
        library: "wgrad".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        adapter: device.adapter().name.clone(),
    };
    let one = || {
        let mut step = || -> wgrad::Result<f32> {
            session.feed("x", &work.x)?;
            session.feed("y", &work.y)?;
            session.step()?;
            session.loss()
        };
        step().unwrap_or_else(|error| panic!("{error}"))
    };
    work.run(&who, start, one, || bytes);
    Ok(())
}

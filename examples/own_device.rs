//! Trains on a wgpu device that the app has already opened and also uses for other work.
//!
//! `cargo run --release --example own_device`

use wgrad::prelude::*;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    // The setup that an app with a window has already done.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    // wgrad's features, limits and memory hints; an app adds here what else it needs.
    let descriptor = wgrad::device::descriptor(&adapter);
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor))?;

    // Handles are cheap to clone; the app keeps its own.
    let device = Device::from_wgpu(device.clone(), queue.clone());
    println!("{device}");

    // Fits y = 3x - 1 to 64 points.
    let params = Params::new(1);
    let line = Linear::new(&params.scope("line"), 1, 1);
    let step = TrainStep::trace(&params, |g| {
        let (x, y) = (g.input("x", [64, 1]), g.input("y", [64, 1]));
        x.apply(&line).mse(&y)
    })?;
    let options =
        PlanOptions { optimizer: Sgd { lr: 0.3, ..Sgd::default() }.into(), ..PlanOptions::default() };
    let mut session = Session::new(&device, &step.plan(&options, device.limits())?)?;
    let x: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 3.0 * x - 1.0).collect();
    session.feed("x", &x)?;
    session.feed("y", &y)?;
    for _ in 0..100 {
        session.step()?;
        // The app may submit its own work in between: both share the queue.
        queue.submit([]);
    }
    let (slope, offset) = (session.parameter("line.weight")?[0], session.parameter("line.bias")?[0]);
    println!("y = {slope:.3} x {offset:+.3}, loss {:.1e}", session.loss()?);
    println!("{} created on the app's device", Bytes(session.device_bytes()));
    if let Some(driver) = device.driver_memory() {
        println!("{} reserved by wgpu for all of the app", Bytes(driver.reserved));
    }
    Ok(())
}

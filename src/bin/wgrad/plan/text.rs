//! Prints a plan as text.

use wgrad::compile::{Activations, Plan};
use wgrad::limits::Card;
use wgrad::report::{Answer, Fitting, RankPlan};
use wgrad::{Bytes, report};

use super::{Options, Printed};

pub(super) fn print(options: &Options, printed: &Printed) {
    let Printed { title, answer, model, .. } = printed;
    let Answer { plan, changes, fitting, .. } = answer;
    println!("{title} · {}\n", plan.limits);
    if !changes.is_empty() {
        println!("changed to fit: {}\n", changes.join(", "));
    }
    print!("{}", answer.estimate(options.network.batch(model)));
    println!("\nkept for the backward pass");
    let kept = report::kept(plan);
    // As wide as the lines below.
    let width = kept.iter().map(|kept| kept.op.len()).max().unwrap_or(0).max(14);
    for report::Kept { op, tensors, bytes } in kept {
        println!("  {op:<width$}{:>12}  of {tensors}", Bytes(bytes).to_string());
    }
    let (time, flops) = (100.0 * plan.work.time_fraction(), 100.0 * plan.work.flops_fraction());
    println!("\ncomputed again  {time:.2} % of the step's modelled time, {flops:.2} % of its arithmetic");
    if let Some(least) = answer.least_recomputed {
        let stay = printed.settings.offload.activations == Activations::Keep;
        let copies = if stay { "" } else { " with copies of activations" };
        println!("at least        {:.2} %{copies}, whatever is kept within the budget", 100.0 * least);
    }
    if let Some(coded) = plan.coded.filter(|coded| *coded < 1.0) {
        let (share, precision) = (100.0 * coded, printed.settings.precision.name());
        println!("in {precision:<13}{share:.1} % of the bytes that may be, others in bf16");
    }
    if let Some(away) = plan.state_away.filter(|away| *away < 1.0) {
        println!("state           {:.1} % in host memory, as the budget needs", 100.0 * away);
    }
    if plan.work.moved > 0 {
        let (moved, time) = (Bytes(plan.work.moved), 100.0 * plan.work.moved_fraction());
        println!("moved           {moved} to and from the host, {time:.2} % of the step's modelled time");
    }
    if plan.parallel.ranks > 1 {
        print_wire(plan, &printed.settings.card);
        print_ranks(&answer.ranks);
    }
    if let Some(fitting) = fitting {
        print_fitting(fitting, plan.footprint().total());
    }
}

fn print_wire(plan: &Plan, card: &Card) {
    let ms = |seconds: f64| format!("{:.1} ms", 1e3 * seconds);
    let (sent, rate) = (Bytes(plan.wire_bytes()), Bytes(plan.parallel.wire_bytes_per_s as u64));
    let who = if plan.parallel.shares.is_even() { "each" } else { "the first" };
    let (ranks, exchanges) = (plan.parallel.ranks, plan.graph().exchanges.len());
    println!("sent            {sent} by {who} of {ranks} ranks, in {exchanges} exchanges");
    if let Ok(times) = plan.wire_times(card) {
        let share = 100.0 * times.exposed_fraction();
        let [wire, exposed, step] = [times.wire_s, times.exposed_s, times.step_s].map(ms);
        println!(
            "exposed         {exposed} of {wire} on the wire at {rate}/s ({share:.0} %), in a step of {step}"
        );
    }
}

/// Prints what each rank has, if they have different shares of the batch.
fn print_ranks(ranks: &[RankPlan]) {
    if ranks.is_empty() {
        return;
    }
    println!("\neach rank{:>12}{:>15}{:>15}{:>12}", "parts", "created", "sent", "step");
    for (rank, RankPlan { parts, bytes, sent, step_s }) in ranks.iter().enumerate() {
        let [bytes, sent] = [*bytes, *sent].map(|bytes| Bytes(bytes).to_string());
        println!("  {rank:<7}{parts:>12}{bytes:>15}{sent:>15}{:>12}", format!("{:.1} ms", 1e3 * step_s));
    }
}

fn print_fitting(fitting: &Fitting, total: u64) {
    let Fitting { budget, fits, levers, cheapest, .. } = fitting;
    if *fits {
        println!("budget          {budget}: it fits, {} to spare", Bytes(budget.0 - total));
    } else {
        println!("budget          {budget}: {} too much", Bytes(total - budget.0));
    }
    match fitting.max_seq {
        Some(0) => println!("longest         not even 64 tokens fit"),
        Some(tokens) => println!("longest         sequences of {tokens} tokens fit"),
        None => {}
    }
    if !levers.is_empty() {
        println!("\neach lever on its own, most bytes for its time first");
        println!("  {:<24}{:>12}{:>12}{:>9}", "", "total", "saved", "time");
    }
    for lever in levers {
        let (total, saved) = (Bytes(lever.total_bytes).to_string(), Bytes(lever.saved_bytes).to_string());
        let time = format!("{:+.1} %", 100.0 * lever.time_fraction);
        let fits = if lever.total_bytes <= budget.0 { "  fits" } else { "" };
        let bits = if lever.exact { "" } else { "  other results" };
        println!("  {:<24}{total:>12}{saved:>12}{time:>9}{fits}{bits}", lever.name);
    }
    if let Some((changes, total, time)) = cheapest {
        println!("\n--fit would take {changes}: {} at {:+.2} % of the time", Bytes(*total), 100.0 * time);
    } else if !fits {
        println!("\nno combination of recomputation and accumulation fits");
    }
}

//! Counts the loop iterations of a thread by interpreting, in naga's IR, what decides the control flow of its
//! loops. Where memory decides a condition, both branches are followed and the one with more iterations
//! counts; such a condition never ends a loop.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{
    AddressSpace, Binding, Block, BuiltIn, Expression, Function, Handle, Module, RelationalFunction,
    ShaderStage, Statement, SwitchValue,
};
use wgrad::kernels::{Kernel, Launch};

use super::slice::{Loopy, Slice, has_loop, root};
use super::value::{Value, binary, cast, math, select, unary};

/// What determines the iterations of a launch: its kernel, its parameters, its constants as text, and its
/// grid.
type Key = (String, Vec<u32>, String, [u32; 3]);

/// Parsed modules by name of their kernel, and results of earlier counts.
#[derive(Default)]
pub struct Modules {
    parsed: BTreeMap<String, (Module, ModuleInfo)>,
    counted: BTreeMap<Key, Result<u64, String>>,
}

impl Modules {
    fn of(&mut self, kernel: &Kernel) -> &(Module, ModuleInfo) {
        self.parsed.entry(kernel.name.to_string()).or_insert_with(|| {
            let text = kernel.source();
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|e| panic!("{}: {}", kernel.name, e.emit_to_string(&text)));
            let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module);
            let info = info.unwrap_or_else(|e| panic!("{}: {}", kernel.name, e.emit_to_string(&text)));
            (module, info)
        })
    }

    /// Whether a kernel has a loop.
    pub fn loops(&mut self, kernel: &Kernel) -> bool {
        let (module, _) = self.of(kernel);
        has_loop(module, &module.entry_points[0].function.body)
    }

    /// Returns the maximum of iterations of a thread of `launch`, over threads at both ends of the grid and
    /// in between.
    ///
    /// # Errors
    /// A thread with more than `most` iterations, or code that the interpreter does not support.
    pub fn iterations<M>(&mut self, launch: &Launch<M>, most: u64) -> Result<u64, String> {
        let Launch { kernel, constants, params, grid, .. } = launch;
        // These variants have the same loops and differ only in memory accesses.
        let name = kernel.name.replace("_in_place", "").replace("_u64", "");
        let key = (name, params.clone(), format!("{constants:?} {most}"), *grid);
        if let Some(counted) = self.counted.get(&key) {
            return counted.clone();
        }
        let counted = self.count(launch, most);
        self.counted.insert(key, counted.clone());
        counted
    }

    fn count<M>(&mut self, launch: &Launch<M>, most: u64) -> Result<u64, String> {
        if !self.loops(&launch.kernel) {
            return Ok(0);
        }
        let (module, info) = self.of(&launch.kernel);
        let constants = launch.constants.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let entry = Some((ShaderStage::Compute, "main"));
        let (module, _) = naga::back::pipeline_constants::process_overrides(module, info, entry, &constants)
            .map_err(|e| format!("{e:?}"))?;
        let mut run = Run::new(&module, &launch.params, most);
        let mut worst = 0;
        let width = module.entry_points[0].workgroup_size.iter().product::<u32>();
        for group in some_of(u64::from(launch.grid[0]) * u64::from(launch.grid[1])) {
            for thread in [0, width - 1] {
                run.iterations = 0;
                run.thread(launch, group, thread, width)?;
                worst = worst.max(run.iterations);
            }
        }
        Ok(worst)
    }
}

/// Returns some numbers below `n`: the first, the last, and some between.
fn some_of(n: u64) -> Vec<u64> {
    let mut list: Vec<u64> = [0, 1, n / 2, n.saturating_sub(2), n - 1].into();
    list.retain(|i| *i < n);
    list.sort_unstable();
    list.dedup();
    list
}

/// Returns the increment of each variable; `None` if a variable changed in another way.
fn steps(before: &[Value], after: &[Value]) -> Option<Vec<u32>> {
    let step = |(before, after): (&Value, &Value)| match (before, after) {
        (Value::U32(before), Value::U32(after)) => Some(after.wrapping_sub(*before)),
        (before, after) => (before == after).then_some(0),
    };
    before.iter().zip(after).map(step).collect()
}

/// Returns the variables after `n` more steps; `None` beyond 32 bits.
fn advanced(from: &[Value], step: &[u32], n: u64) -> Option<Vec<Value>> {
    let one = |(value, step): (&Value, &u32)| match value {
        Value::U32(value) => {
            // The step may be negative.
            let to = i64::from(*value) + i64::from(*step as i32) * i64::try_from(n).ok()?;
            u32::try_from(to).ok().map(Value::U32)
        }
        other => Some(other.clone()),
    };
    from.iter().zip(step).map(one).collect()
}

enum Flow {
    Next,
    Break,
    Continue,
    Return(Value),
}

struct Run<'a> {
    module: &'a Module,
    loopy: Loopy,
    slices: HashMap<(*const Function, bool), Rc<Slice>>,
    /// For the body of each loop, whether the loop only counts.
    counting: HashMap<*const Block, bool>,
    /// The value of each global variable; only uniforms are known.
    uniforms: Vec<Value>,
    iterations: u64,
    most: u64,
}

struct Frame<'a> {
    function: &'a Function,
    slice: Rc<Slice>,
    arguments: Vec<Value>,
    values: Vec<Option<Value>>,
    variables: Vec<Value>,
}

impl<'a> Run<'a> {
    fn new(module: &'a Module, words: &[u32], most: u64) -> Self {
        let uniform = |(_, global): (_, &naga::GlobalVariable)| match global.space {
            AddressSpace::Uniform => Value::of_type(module, global.ty, words, 0),
            _ => Value::Unknown,
        };
        let uniforms = module.global_variables.iter().map(uniform).collect();
        let (loopy, slices, counting) = (Loopy::of(module), HashMap::new(), HashMap::new());
        Self { module, loopy, slices, counting, uniforms, iterations: 0, most }
    }

    fn thread<M>(&mut self, launch: &Launch<M>, group: u64, thread: u32, width: u32) -> Result<(), String> {
        let module: &'a Module = self.module;
        let entry = &module.entry_points[0];
        let [columns, rows, _] = launch.grid;
        let [x, y] = [(group % u64::from(columns)) as u32, (group / u64::from(columns)) as u32];
        let lanes = launch.constants.iter().find(|(name, _)| *name == "LANES").map_or(8, |(_, n)| *n as u32);
        let three = |list: [u32; 3]| Value::Many(list.map(Value::U32).to_vec());
        let argument = |argument: &naga::FunctionArgument| match &argument.binding {
            Some(Binding::BuiltIn(BuiltIn::WorkGroupId)) => three([x, y, 0]),
            Some(Binding::BuiltIn(BuiltIn::NumWorkGroups)) => three([columns, rows, 1]),
            Some(Binding::BuiltIn(BuiltIn::LocalInvocationId)) => three([thread, 0, 0]),
            Some(Binding::BuiltIn(BuiltIn::LocalInvocationIndex)) => Value::U32(thread),
            Some(Binding::BuiltIn(BuiltIn::GlobalInvocationId)) => three([x * width + thread, y, 0]),
            Some(Binding::BuiltIn(BuiltIn::SubgroupId)) => Value::U32(thread / lanes),
            Some(Binding::BuiltIn(BuiltIn::SubgroupInvocationId)) => Value::U32(thread % lanes),
            Some(Binding::BuiltIn(BuiltIn::SubgroupSize)) => Value::U32(lanes),
            _ => Value::Unknown,
        };
        let arguments = entry.function.arguments.iter().map(argument).collect();
        self.call(&entry.function, arguments, false).map(|_| ())
    }

    fn call(&mut self, function: &'a Function, arguments: Vec<Value>, result: bool) -> Result<Value, String> {
        let slice = || Rc::new(Slice::of(&self.loopy, function, result));
        let slice = Rc::clone(self.slices.entry((function, result)).or_insert_with(slice));
        let values = vec![None; function.expressions.len()];
        let mut frame = Frame { function, slice, arguments, values, variables: Vec::new() };
        for (handle, variable) in function.local_variables.iter() {
            let zero = || Value::of_type(self.module, variable.ty, &[], 0);
            let kept = frame.slice.keeps(handle);
            let first = || variable.init.map_or_else(zero, |init| self.value(&frame, init));
            let first = if kept { first() } else { Value::Unknown };
            frame.variables.push(first);
        }
        match self.block(&mut frame, &function.body)? {
            Flow::Return(value) => Ok(value),
            _ => Ok(Value::Unknown),
        }
    }

    fn block(&mut self, frame: &mut Frame<'a>, block: &'a Block) -> Result<Flow, String> {
        for statement in block {
            match self.statement(frame, statement)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn statement(&mut self, frame: &mut Frame<'a>, statement: &'a Statement) -> Result<Flow, String> {
        match statement {
            Statement::Emit(range) => {
                for expression in range.clone().filter(|expression| frame.slice.needs(*expression)) {
                    frame.values[expression.index()] = Some(self.evaluate(frame, expression));
                }
            }
            Statement::Block(block) => return self.block(frame, block),
            Statement::If { condition, accept, reject } => {
                if !frame.slice.needs(*condition) {
                    return Ok(Flow::Next);
                }
                return match self.value(frame, *condition) {
                    Value::Bool(true) => self.block(frame, accept),
                    Value::Bool(false) => self.block(frame, reject),
                    _ => self.either(frame, accept, reject),
                };
            }
            Statement::Switch { selector, cases } => {
                if !frame.slice.needs(*selector) {
                    return Ok(Flow::Next);
                }
                let selected = match self.value(frame, *selector) {
                    Value::U32(n) => SwitchValue::U32(n),
                    Value::I32(n) => SwitchValue::I32(n),
                    _ => return Err("a `switch` over what memory decides".to_owned()),
                };
                let own = cases.iter().position(|case| case.value == selected);
                let other = || cases.iter().position(|case| case.value == SwitchValue::Default);
                for case in cases.iter().skip(own.or_else(other).unwrap_or(cases.len())) {
                    match self.block(frame, &case.body)? {
                        Flow::Next if case.fall_through => {}
                        Flow::Next | Flow::Break => break,
                        flow => return Ok(flow),
                    }
                }
            }
            Statement::Loop { body, continuing, break_if } => {
                return self.repeat(frame, body, continuing, *break_if);
            }
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
            Statement::Return { value } => {
                let value = value.filter(|value| frame.slice.needs(*value));
                return Ok(Flow::Return(value.map_or(Value::Unknown, |value| self.value(frame, value))));
            }
            Statement::Store { pointer, value } => self.store(frame, *pointer, *value),
            Statement::Call { function, arguments, result } if frame.slice.calls(&self.loopy, statement) => {
                let argument = |argument: &Handle<Expression>| match frame.slice.needs(*argument) {
                    true => self.value(frame, *argument),
                    false => Value::Unknown,
                };
                let arguments = arguments.iter().map(argument).collect();
                let needed = result.filter(|result| frame.slice.needs(*result));
                let module: &'a Module = self.module;
                let value = self.call(&module.functions[*function], arguments, needed.is_some())?;
                if let Some(result) = needed {
                    frame.values[result.index()] = Some(value);
                }
            }
            _ => {}
        }
        Ok(Flow::Next)
    }

    fn repeat(
        &mut self,
        frame: &mut Frame<'a>,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<Flow, String> {
        let counts = || frame.slice.only_counts(&self.loopy, frame.function, [body, continuing]);
        let mut counts = break_if.is_none() && *self.counting.entry(body).or_insert_with(counts);
        loop {
            self.iterations += 1;
            if self.iterations > self.most {
                return Err(format!("more than {} iterations", self.most));
            }
            let before = counts.then(|| frame.variables.clone());
            match self.block(frame, body)? {
                Flow::Break => return Ok(Flow::Next),
                flow @ Flow::Return(_) => return Ok(flow),
                Flow::Next | Flow::Continue => {}
            }
            self.block(frame, continuing)?;
            if break_if.is_some_and(|condition| self.value(frame, condition) == Value::Bool(true)) {
                return Ok(Flow::Next);
            }
            if let Some(step) = before.and_then(|before| steps(&before, &frame.variables)) {
                self.skip(frame, body, &step)?;
                counts = false;
            }
        }
    }

    /// Skips to the last iteration of a loop that only counts, by bisection: its one condition holds until it
    /// ends the loop.
    fn skip(&mut self, frame: &mut Frame<'a>, body: &'a Block, step: &[u32]) -> Result<(), String> {
        let first = frame.variables.clone();
        let mut ends = |run: &mut Self, n: u64| -> Result<bool, String> {
            let Some(there) = advanced(&first, step, n) else { return Ok(true) };
            frame.variables = there;
            Ok(matches!(run.block(frame, body)?, Flow::Break))
        };
        // The loop does not end before `low` iterations, and has ended after `high`.
        let (mut low, mut high) = (0, 1);
        while high <= self.most && !ends(self, high)? {
            (low, high) = (high, 2 * high);
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            if ends(self, middle)? { high = middle } else { low = middle }
        }
        self.iterations += low;
        frame.variables = advanced(&first, step, low).unwrap_or(first);
        Ok(())
    }

    /// Follows both branches of a condition that memory decides.
    fn either(
        &mut self,
        frame: &mut Frame<'a>,
        accept: &'a Block,
        reject: &'a Block,
    ) -> Result<Flow, String> {
        let (variables, iterations) = (frame.variables.clone(), self.iterations);
        let first = self.block(frame, accept)?;
        let accepted = std::mem::replace(&mut frame.variables, variables);
        let most = std::mem::replace(&mut self.iterations, iterations);
        let second = self.block(frame, reject)?;
        self.iterations = self.iterations.max(most);
        match (first, second) {
            (Flow::Next, Flow::Next) => {
                frame.variables.iter_mut().zip(&accepted).for_each(|(a, b)| a.merge(b));
                Ok(Flow::Next)
            }
            // If one branch leaves the loop and the other stays, the one that stays iterates more.
            (Flow::Next, Flow::Break | Flow::Return(_)) => {
                frame.variables = accepted;
                Ok(Flow::Next)
            }
            (Flow::Break | Flow::Return(_), Flow::Next) => Ok(Flow::Next),
            (Flow::Return(_), Flow::Return(_)) => Ok(Flow::Return(Value::Unknown)),
            _ => Err("memory decides about a `continue`, or how a loop is left".to_owned()),
        }
    }

    /// Returns the index path from a variable to the component that a pointer refers to; `None` if memory
    /// decides it.
    fn place(&self, frame: &Frame, pointer: Handle<Expression>) -> Option<Vec<usize>> {
        let (base, index) = match &frame.function.expressions[pointer] {
            Expression::Access { base, index } => (*base, self.value(frame, *index).index()?),
            Expression::AccessIndex { base, index } => (*base, *index as usize),
            _ => return Some(Vec::new()),
        };
        let mut way = self.place(frame, base)?;
        way.push(index);
        Some(way)
    }

    fn store(&self, frame: &mut Frame, pointer: Handle<Expression>, value: Handle<Expression>) {
        let Expression::LocalVariable(variable) = *root(frame.function, pointer) else { return };
        if !frame.slice.keeps(variable) {
            return;
        }
        let value = self.value(frame, value);
        let way = self.place(frame, pointer);
        let mut at = &mut frame.variables[variable.index()];
        let Some(way) = way else {
            *at = Value::Unknown;
            return;
        };
        for index in way {
            match at {
                Value::Many(list) if index < list.len() => at = &mut list[index],
                _ => return,
            }
        }
        *at = value;
    }

    /// Returns the value that a pointer refers to; `None` if it is in memory or if memory decides it.
    fn load<'v>(&'v self, frame: &'v Frame, pointer: Handle<Expression>) -> Option<&'v Value> {
        let (base, index) = match &frame.function.expressions[pointer] {
            Expression::LocalVariable(variable) => return frame.variables.get(variable.index()),
            Expression::GlobalVariable(global) => return self.uniforms.get(global.index()),
            Expression::Access { base, index } => (*base, self.value(frame, *index).index()?),
            Expression::AccessIndex { base, index } => (*base, *index as usize),
            _ => return None,
        };
        match self.load(frame, base)? {
            Value::Many(list) => list.get(index),
            _ => None,
        }
    }

    /// Returns a value that was emitted before, or one that needs no statement.
    fn value(&self, frame: &Frame, expression: Handle<Expression>) -> Value {
        match &frame.values[expression.index()] {
            Some(value) => value.clone(),
            None => self.evaluate(frame, expression),
        }
    }

    fn evaluate(&self, frame: &Frame, expression: Handle<Expression>) -> Value {
        let value = |expression: Handle<Expression>| self.value(frame, expression);
        let list = |list: &[Handle<Expression>]| list.iter().map(|one| value(*one)).collect::<Vec<_>>();
        match &frame.function.expressions[expression] {
            Expression::Literal(literal) => Value::literal(*literal),
            Expression::Constant(constant) => self.constant(self.module.constants[*constant].init),
            Expression::ZeroValue(ty) => Value::of_type(self.module, *ty, &[], 0),
            Expression::FunctionArgument(i) => frame.arguments[*i as usize].clone(),
            Expression::Compose { components, .. } => {
                flattened(list(components), self.module, frame, expression)
            }
            Expression::Splat { size, value: one } => Value::Many(vec![value(*one); *size as usize]),
            Expression::Swizzle { size, vector, pattern } => {
                let vector = value(*vector);
                Value::Many(pattern[..*size as usize].iter().map(|lane| vector.at(*lane as usize)).collect())
            }
            Expression::Load { pointer } => self.load(frame, *pointer).cloned().unwrap_or(Value::Unknown),
            Expression::AccessIndex { base, index } => value(*base).at(*index as usize),
            Expression::Access { base, index } => {
                value(*index).index().map_or(Value::Unknown, |index| value(*base).at(index))
            }
            Expression::Unary { op, expr } => unary(*op, &value(*expr)),
            Expression::Binary { op, left, right } => binary(*op, &value(*left), &value(*right)),
            Expression::Select { condition, accept, reject } => {
                select(&value(*condition), &value(*accept), &value(*reject))
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let args: Vec<_> =
                    [Some(*arg), *arg1, *arg2, *arg3].into_iter().flatten().map(value).collect();
                math(*fun, &args)
            }
            Expression::As { expr, kind, convert } => cast(&value(*expr), *kind, convert.is_some()),
            Expression::Relational { fun, argument } => relational(*fun, &value(*argument)),
            _ => Value::Unknown,
        }
    }

    fn constant(&self, expression: Handle<Expression>) -> Value {
        match &self.module.global_expressions[expression] {
            Expression::Literal(literal) => Value::literal(*literal),
            Expression::Constant(constant) => self.constant(self.module.constants[*constant].init),
            Expression::ZeroValue(ty) => Value::of_type(self.module, *ty, &[], 0),
            Expression::Compose { components, .. } => {
                Value::Many(components.iter().map(|one| self.constant(*one)).collect())
            }
            Expression::Splat { size, value } => Value::Many(vec![self.constant(*value); *size as usize]),
            _ => Value::Unknown,
        }
    }
}

/// Returns a composed value; vectors may be composed of vectors.
fn flattened(parts: Vec<Value>, module: &Module, frame: &Frame, expression: Handle<Expression>) -> Value {
    let Expression::Compose { ty, .. } = &frame.function.expressions[expression] else {
        return Value::Unknown;
    };
    if !matches!(module.types[*ty].inner, naga::TypeInner::Vector { .. }) {
        return Value::Many(parts);
    }
    let lanes = parts.into_iter().flat_map(|part| match part {
        Value::Many(list) => list,
        one => vec![one],
    });
    Value::Many(lanes.collect())
}

fn relational(function: RelationalFunction, argument: &Value) -> Value {
    let (RelationalFunction::All | RelationalFunction::Any, Value::Many(list)) = (function, argument) else {
        return Value::Unknown;
    };
    let decisive = Value::Bool(function == RelationalFunction::Any);
    match list {
        _ if list.contains(&decisive) => decisive,
        _ if list.contains(&Value::Unknown) => Value::Unknown,
        _ => Value::Bool(function == RelationalFunction::All),
    }
}

//! The slice of a function that decides about its loops. Everything else, above all floating-point
//! arithmetic, is left out.

use naga::{Block, Expression, Function, Handle, LocalVariable, Module, Statement};

/// Expressions to evaluate and variables to keep, by number.
#[derive(Debug)]
pub struct Slice {
    expressions: Vec<bool>,
    variables: Vec<bool>,
}

/// For each function of a module that has a loop, or calls one that has: which of its arguments decide about
/// loops.
pub struct Loopy(Vec<Option<Vec<bool>>>);

impl Loopy {
    pub fn of(module: &Module) -> Self {
        let mut known = Self(Vec::new());
        // Functions come after those that they call.
        for (_, function) in module.functions.iter() {
            let deciding = has_loop(module, &function.body).then(|| {
                let slice = Slice::of(&known, function, false);
                let mut deciding = vec![false; function.arguments.len()];
                for (expression, kind) in function.expressions.iter() {
                    if let Expression::FunctionArgument(i) = kind {
                        deciding[*i as usize] |= slice.needs(expression);
                    }
                }
                deciding
            });
            known.0.push(deciding);
        }
        known
    }

    pub fn has(&self, function: Handle<Function>) -> bool {
        self.0[function.index()].is_some()
    }
}

/// Whether a block has a loop, or calls a function that has one.
pub fn has_loop(module: &Module, block: &Block) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Loop { .. } => true,
        Statement::Block(block) => has_loop(module, block),
        Statement::If { accept, reject, .. } => has_loop(module, accept) || has_loop(module, reject),
        Statement::Switch { cases, .. } => cases.iter().any(|case| has_loop(module, &case.body)),
        Statement::Call { function, .. } => has_loop(module, &module.functions[*function].body),
        _ => false,
    })
}

/// Returns the variable or global that a pointer refers to.
pub fn root(function: &Function, mut pointer: Handle<Expression>) -> &Expression {
    loop {
        match &function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = *base,
            other => return other,
        }
    }
}

impl Slice {
    /// Returns the slice that decides about the loops of `function` and, with `result`, about its return
    /// value.
    pub fn of(loopy: &Loopy, function: &Function, result: bool) -> Self {
        let expressions = vec![false; function.expressions.len()];
        let mut slice = Self { expressions, variables: vec![false; function.local_variables.len()] };
        loop {
            let before = slice.size();
            slice.mark(loopy, function, &function.body, result);
            if before == slice.size() {
                return slice;
            }
        }
    }

    fn size(&self) -> usize {
        self.expressions.iter().chain(&self.variables).filter(|needed| **needed).count()
    }

    pub fn needs(&self, expression: Handle<Expression>) -> bool {
        self.expressions[expression.index()]
    }

    pub fn keeps(&self, variable: Handle<LocalVariable>) -> bool {
        self.variables[variable.index()]
    }

    fn mark(&mut self, loopy: &Loopy, function: &Function, block: &Block, result: bool) {
        for statement in block {
            match statement {
                Statement::Block(block) => self.mark(loopy, function, block, result),
                Statement::If { condition, accept, reject } => {
                    self.mark(loopy, function, accept, result);
                    self.mark(loopy, function, reject, result);
                    if self.matters(loopy, function, accept) || self.matters(loopy, function, reject) {
                        self.need(function, *condition);
                    }
                }
                Statement::Switch { selector, cases } => {
                    cases.iter().for_each(|case| self.mark(loopy, function, &case.body, result));
                    if cases.iter().any(|case| self.matters(loopy, function, &case.body)) {
                        self.need(function, *selector);
                    }
                }
                Statement::Loop { body, continuing, break_if } => {
                    self.mark(loopy, function, body, result);
                    self.mark(loopy, function, continuing, result);
                    break_if.iter().for_each(|condition| self.need(function, *condition));
                }
                Statement::Store { pointer, value } if self.stores(function, *pointer) => {
                    self.need(function, *pointer);
                    self.need(function, *value);
                }
                Statement::Return { value: Some(value) } if result => self.need(function, *value),
                Statement::Call { function: callee, arguments, result: to }
                    if self.calls(loopy, statement) =>
                {
                    let whole = to.is_some_and(|to| self.needs(to));
                    for (i, argument) in arguments.iter().enumerate() {
                        if whole || loopy.0[callee.index()].as_ref().is_some_and(|deciding| deciding[i]) {
                            self.need(function, *argument);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn stores(&self, function: &Function, pointer: Handle<Expression>) -> bool {
        matches!(root(function, pointer), Expression::LocalVariable(variable) if self.keeps(*variable))
    }

    /// Whether a call is to a function with a loop, or has a result that is needed.
    pub fn calls(&self, loopy: &Loopy, statement: &Statement) -> bool {
        let Statement::Call { function, result, .. } = statement else { return false };
        loopy.has(*function) || result.is_some_and(|result| self.needs(result))
    }

    /// Whether a block changes a variable of the slice, or the control flow.
    pub fn matters(&self, loopy: &Loopy, function: &Function, block: &Block) -> bool {
        block.iter().any(|statement| match statement {
            Statement::Loop { .. }
            | Statement::Break
            | Statement::Continue
            | Statement::Return { .. }
            | Statement::Kill => true,
            Statement::Block(block) => self.matters(loopy, function, block),
            Statement::If { accept, reject, .. } => {
                self.matters(loopy, function, accept) || self.matters(loopy, function, reject)
            }
            Statement::Switch { cases, .. } => {
                cases.iter().any(|case| self.matters(loopy, function, &case.body))
            }
            Statement::Store { pointer, .. } => self.stores(function, *pointer),
            Statement::Call { .. } => self.calls(loopy, statement),
            _ => false,
        })
    }

    /// Whether a loop has exactly one condition, a comparison that ends it, and otherwise only adds
    /// loop-invariant values to variables.
    pub fn only_counts(&self, loopy: &Loopy, function: &Function, blocks: [&Block; 2]) -> bool {
        let mut conditions = 0;
        let simple = blocks.into_iter().flat_map(|block| block.iter()).all(|statement| match statement {
            Statement::If { condition, accept, reject } if self.needs(*condition) => {
                conditions += 1;
                let breaks = matches!(reject.first(), Some(Statement::Break)) && reject.len() == 1;
                accept.is_empty() && breaks && compares(function, *condition)
            }
            Statement::If { accept, reject, .. } => {
                !self.matters(loopy, function, accept) && !self.matters(loopy, function, reject)
            }
            Statement::Block(block) => !self.matters(loopy, function, block),
            Statement::Store { pointer, value } if self.stores(function, *pointer) => {
                adds(function, *pointer, *value)
            }
            Statement::Loop { .. }
            | Statement::Switch { .. }
            | Statement::Break
            | Statement::Continue
            | Statement::Return { .. } => false,
            Statement::Call { .. } => !self.calls(loopy, statement),
            _ => true,
        });
        simple && conditions == 1
    }

    fn need(&mut self, function: &Function, expression: Handle<Expression>) {
        if std::mem::replace(&mut self.expressions[expression.index()], true) {
            return;
        }
        let mut operands: Vec<Handle<Expression>> = Vec::new();
        match &function.expressions[expression] {
            Expression::Compose { components, .. } => operands.extend(components),
            Expression::Access { base, index } => operands.extend([*base, *index]),
            Expression::AccessIndex { base, .. } => operands.push(*base),
            Expression::Splat { value, .. } => operands.push(*value),
            Expression::Swizzle { vector, .. } => operands.push(*vector),
            Expression::Load { pointer } => operands.push(*pointer),
            Expression::Unary { expr, .. } | Expression::As { expr, .. } => operands.push(*expr),
            Expression::Binary { left, right, .. } => operands.extend([*left, *right]),
            Expression::Select { condition, accept, reject } => {
                operands.extend([*condition, *accept, *reject]);
            }
            Expression::Relational { argument, .. } => operands.push(*argument),
            Expression::Math { arg, arg1, arg2, arg3, .. } => {
                operands.extend([Some(*arg), *arg1, *arg2, *arg3].into_iter().flatten());
            }
            Expression::LocalVariable(variable) => {
                self.variables[variable.index()] = true;
                operands.extend(function.local_variables[*variable].init);
            }
            _ => {}
        }
        operands.into_iter().for_each(|operand| self.need(function, operand));
    }
}

fn compares(function: &Function, condition: Handle<Expression>) -> bool {
    use naga::BinaryOperator as B;
    let order = [B::Less, B::LessEqual, B::Greater, B::GreaterEqual];
    matches!(&function.expressions[condition], Expression::Binary { op, .. } if order.contains(op))
}

/// Whether the store is `variable += n`, or `-=`, with a literal or a constant as `n`.
fn adds(function: &Function, pointer: Handle<Expression>, value: Handle<Expression>) -> bool {
    use naga::BinaryOperator as B;
    let expressions = &function.expressions;
    let Expression::Binary { op: B::Add | B::Subtract, left, right } = &expressions[value] else {
        return false;
    };
    let own = matches!(&expressions[*left], Expression::Load { pointer: from } if *from == pointer);
    own && matches!(expressions[pointer], Expression::LocalVariable(_))
        && matches!(expressions[*right], Expression::Literal(_) | Expression::Constant(_))
}

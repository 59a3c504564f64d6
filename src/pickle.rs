//! Reads Python pickles as data: numbers, strings, lists, tuples and dicts. Nothing in the pickle is
//! executed.
//!
//! A pickle is a program for a stack machine. Names that it would import are refused unless the reader lists
//! them; a call of a listed name is a value with its operands, [`Value::Call`], for the reader to interpret. The
//! other opcodes build values in one table and refer to them by index, so that shared and even cyclic values
//! need no copies. The opcodes are those of Python's `pickletools`, protocols 2 to 5.

/// Maximum number of values in one pickle; a larger pickle is treated as an attack.
const MAX_VALUES: usize = 1 << 26;
/// Maximum number of open marks, that is, of nested containers being filled.
const MAX_DEPTH: usize = 64;

/// A pickle that is damaged, or contains more than plain data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {what}")]
pub struct PickleError {
    /// Where in the file, from 0.
    pub offset: usize,
    /// What is wrong there.
    pub what: String,
}

/// Index of a value.
pub(crate) type Id = u32;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    Bytes,
    /// List, tuple or set.
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A name that the reader lists, `module.name`.
    Name(String),
    /// What calling a listed name with these operands, a list, would give.
    Call(String, Id),
    /// What the program that wrote the pickle keeps outside of it, by its description there.
    External(Id),
}

/// The name that is called without operands to make an empty dict.
const ORDERED_DICT: &str = "collections.OrderedDict";

/// The values of a pickle.
#[derive(Debug)]
pub(crate) struct Pickle {
    values: Vec<Value>,
    root: Id,
}

impl Pickle {
    /// Reads a pickle of plain data.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, PickleError> {
        Self::read_with(bytes, &[])
    }

    /// Reads a pickle that may import and call the `names`, each `module.name`. State that it would set on an
    /// object is left out.
    pub(crate) fn read_with(bytes: &[u8], names: &[&str]) -> Result<Self, PickleError> {
        let mut machine = Machine {
            bytes,
            names,
            at: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
        };
        let root = machine.run()?;
        Ok(Self { values: machine.values, root })
    }

    pub(crate) fn root(&self) -> Id {
        self.root
    }

    pub(crate) fn value(&self, id: Id) -> &Value {
        self.values.get(id as usize).unwrap_or(&Value::None)
    }

    /// Returns the value of `key` in a dict; the last one if the key was set twice.
    pub(crate) fn get(&self, dict: Id, key: &str) -> Option<Id> {
        let Value::Dict(entries) = self.value(dict) else { return None };
        let found =
            entries.iter().rev().find(|(k, _)| matches!(self.value(*k), Value::Text(text) if text == key));
        found.map(|&(_, value)| value)
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    names: &'a [&'a str],
    at: usize,
    values: Vec<Value>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
}

impl<'a> Machine<'a> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T, PickleError> {
        Err(PickleError { offset: self.at, what: what.into() })
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], PickleError> {
        match self.at.checked_add(n).and_then(|end| self.bytes.get(self.at..end)) {
            Some(bytes) => {
                self.at += n;
                Ok(bytes)
            }
            None => self.error(format!("the file ends within a value of {n} bytes")),
        }
    }

    /// Reads a little-endian number of `n` ≤ 8 bytes.
    fn number(&mut self, n: usize) -> Result<u64, PickleError> {
        Ok(self.take(n)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn length(&mut self, n: usize) -> Result<usize, PickleError> {
        let length = self.number(n)?;
        usize::try_from(length).or_else(|_| self.error(format!("a length of {length}")))
    }

    fn push(&mut self, value: Value) -> Result<(), PickleError> {
        if self.values.len() >= MAX_VALUES {
            return self.error(format!("more than {MAX_VALUES} values"));
        }
        self.values.push(value);
        self.stack.push((self.values.len() - 1) as Id);
        Ok(())
    }

    /// Pops one value, which must lie above the last mark.
    fn pop(&mut self) -> Result<Id, PickleError> {
        if self.stack.len() <= self.marks.last().copied().unwrap_or(0) {
            return self.error("a value is missing on the stack");
        }
        self.stack.pop().map_or_else(|| self.error("the stack is empty"), Ok)
    }

    fn pop_many(&mut self, n: usize) -> Result<Vec<Id>, PickleError> {
        let mut popped = (0..n).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
        popped.reverse();
        Ok(popped)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, PickleError> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => self.error("a mark is missing on the stack"),
        }
    }

    fn top(&self) -> Result<Id, PickleError> {
        match self.stack.last() {
            Some(&id) if self.stack.len() > self.marks.last().copied().unwrap_or(0) => Ok(id),
            _ => self.error("a value is missing on the stack"),
        }
    }

    fn extend_list(&mut self, items: Vec<Id>) -> Result<(), PickleError> {
        let top = self.top()? as usize;
        match &mut self.values[top] {
            Value::List(list) => {
                list.extend(items);
                Ok(())
            }
            _ => self.error("items are added to something that is no list"),
        }
    }

    fn extend_dict(&mut self, items: Vec<Id>) -> Result<(), PickleError> {
        let top = self.top()? as usize;
        if items.len() % 2 == 1 {
            return self.error("a key has no value");
        }
        match &mut self.values[top] {
            Value::Dict(dict) => {
                dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
                Ok(())
            }
            _ => self.error("entries are added to something that is no dict"),
        }
    }

    fn text(&mut self, length: usize) -> Result<(), PickleError> {
        let bytes = self.take(length)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => self.push(Value::Text(text.to_string())),
            // Python writes lone surrogates this way; they occur in file names only.
            Err(_) => self.push(Value::Text(String::from_utf8_lossy(bytes).into_owned())),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<(), PickleError> {
        self.take(length)?;
        self.push(Value::Bytes)
    }

    /// Reads and pushes a two's complement little-endian number of any length up to 16 bytes.
    fn long(&mut self, length: usize) -> Result<(), PickleError> {
        if length > 16 {
            return self.error(format!("an integer of {length} bytes"));
        }
        let bytes = self.take(length)?;
        let sign = if bytes.last().is_some_and(|&byte| byte & 0x80 != 0) { -1 } else { 0 };
        let number = bytes.iter().rev().fold(sign, |number: i128, &byte| number << 8 | i128::from(byte));
        self.push(Value::Int(number))
    }

    /// Reads the rest of a line.
    fn line(&mut self) -> Result<String, PickleError> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else {
            return self.error("the file ends within a name");
        };
        self.at += end + 1;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn pop_text(&mut self) -> Result<String, PickleError> {
        let id = self.pop()? as usize;
        match &self.values[id] {
            Value::Text(text) => Ok(text.clone()),
            _ => self.error("a name that is no text"),
        }
    }

    fn import(&mut self, module: &str, name: &str) -> Result<(), PickleError> {
        let full = format!("{module}.{name}");
        if self.names.contains(&&full[..]) {
            self.push(Value::Name(full))
        } else {
            self.error(format!("it would import `{full}`, which is not data that is known"))
        }
    }

    /// Pushes the call of the name below the operands on the stack.
    fn call(&mut self) -> Result<(), PickleError> {
        let (operands, callee) = (self.pop()?, self.pop()?);
        let (Value::Name(name), Value::List(list)) =
            (&self.values[callee as usize], &self.values[operands as usize])
        else {
            return self.error("a call of something that is no name, or without operands");
        };
        match (&name[..], list.len()) {
            (ORDERED_DICT, 0) => self.push(Value::Dict(Vec::new())),
            _ => self.push(Value::Call(name.clone(), operands)),
        }
    }

    fn remember(&mut self, key: usize) -> Result<(), PickleError> {
        let top = self.top()?;
        // Python numbers its memo from 0 without gaps. A key above the number of values would only waste
        // memory.
        if key > self.values.len() {
            return self.error(format!("memo {key} in a pickle with {} values so far", self.values.len()));
        }
        if self.memo.len() <= key {
            self.memo.resize(key + 1, None);
        }
        self.memo[key] = Some(top);
        Ok(())
    }

    fn recall(&mut self, key: usize) -> Result<(), PickleError> {
        match self.memo.get(key).copied().flatten() {
            Some(id) => {
                self.stack.push(id);
                Ok(())
            }
            None => self.error(format!("memo {key} was never filled")),
        }
    }

    fn run(&mut self) -> Result<Id, PickleError> {
        loop {
            let opcode_at = self.at;
            let opcode = self.take(1)?[0];
            match opcode {
                b'.' => return self.pop(),
                0x80 => {
                    let protocol = self.number(1)?;
                    if !(2..=5).contains(&protocol) {
                        return self.error(format!("protocol {protocol}; 2 to 5 are known"));
                    }
                }
                0x95 => drop(self.number(8)?),
                b'(' if self.marks.len() >= MAX_DEPTH => {
                    return self.error(format!("more than {MAX_DEPTH} containers within each other"));
                }
                b'(' => self.marks.push(self.stack.len()),
                b'0' => drop(self.pop()?),
                b'1' => drop(self.pop_to_mark()?),
                b'2' => {
                    let top = self.top()?;
                    self.stack.push(top);
                }
                b'N' => self.push(Value::None)?,
                0x88 => self.push(Value::Bool(true))?,
                0x89 => self.push(Value::Bool(false))?,
                b'K' => self.small(1)?,
                b'M' => self.small(2)?,
                b'J' => {
                    let number = self.number(4)? as u32 as i32;
                    self.push(Value::Int(number.into()))?;
                }
                0x8a => {
                    let length = self.length(1)?;
                    self.long(length)?;
                }
                0x8b => {
                    let length = self.length(4)?;
                    self.long(length)?;
                }
                b'G' => {
                    let bits = self.take(8)?.iter().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
                    self.push(Value::Float(f64::from_bits(bits)))?;
                }
                0x8c => {
                    let length = self.length(1)?;
                    self.text(length)?;
                }
                b'X' => {
                    let length = self.length(4)?;
                    self.text(length)?;
                }
                0x8d => {
                    let length = self.length(8)?;
                    self.text(length)?;
                }
                b'C' => {
                    let length = self.length(1)?;
                    self.bytes(length)?;
                }
                b'B' => {
                    let length = self.length(4)?;
                    self.bytes(length)?;
                }
                0x8e | 0x96 => {
                    let length = self.length(8)?;
                    self.bytes(length)?;
                }
                b']' | b')' | 0x8f => self.push(Value::List(Vec::new()))?,
                b'}' => self.push(Value::Dict(Vec::new()))?,
                b'l' | b't' | 0x91 => {
                    let items = self.pop_to_mark()?;
                    self.push(Value::List(items))?;
                }
                b'd' => {
                    let items = self.pop_to_mark()?;
                    self.push(Value::Dict(Vec::new()))?;
                    self.extend_dict(items)?;
                }
                0x85..=0x87 => {
                    let items = self.pop_many(usize::from(opcode - 0x84))?;
                    self.push(Value::List(items))?;
                }
                b'a' => {
                    let item = self.pop()?;
                    self.extend_list(vec![item])?;
                }
                b'e' | 0x90 => {
                    let items = self.pop_to_mark()?;
                    self.extend_list(items)?;
                }
                b's' => {
                    let items = self.pop_many(2)?;
                    self.extend_dict(items)?;
                }
                b'u' => {
                    let items = self.pop_to_mark()?;
                    self.extend_dict(items)?;
                }
                0x94 => self.remember(self.memo.len())?,
                b'q' => {
                    let key = self.length(1)?;
                    self.remember(key)?;
                }
                b'r' => {
                    let key = self.length(4)?;
                    self.remember(key)?;
                }
                b'h' => {
                    let key = self.length(1)?;
                    self.recall(key)?;
                }
                b'j' => {
                    let key = self.length(4)?;
                    self.recall(key)?;
                }
                b'c' if !self.names.is_empty() => {
                    let (module, name) = (self.line()?, self.line()?);
                    self.import(&module, &name)?;
                }
                0x93 if !self.names.is_empty() => {
                    let (name, module) = (self.pop_text()?, self.pop_text()?);
                    self.import(&module, &name)?;
                }
                b'R' if !self.names.is_empty() => self.call()?,
                b'b' if !self.names.is_empty() => {
                    self.pop()?;
                    self.top()?;
                }
                b'Q' if !self.names.is_empty() => {
                    let description = self.pop()?;
                    self.push(Value::External(description))?;
                }
                _ => return Err(PickleError { offset: opcode_at, what: refusal(opcode) }),
            }
        }
    }

    fn small(&mut self, bytes: usize) -> Result<(), PickleError> {
        let number = self.number(bytes)?;
        self.push(Value::Int(number.into()))
    }
}

fn refusal(opcode: u8) -> String {
    let name = match opcode {
        b'c' => "GLOBAL",
        0x93 => "STACK_GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        0x81 => "NEWOBJ",
        0x92 => "NEWOBJ_EX",
        0x82..=0x84 => "EXT",
        b'P' | b'Q' => "PERSID",
        0x97 | 0x98 => "BUFFER",
        _ => {
            return format!(
                "0x{opcode:02x} is no opcode of a binary pickle; write it with protocol 2 or later"
            );
        }
    };
    format!("{name} would import or call something that is not read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_data_of_protocols_2_to_5() {
        // pickle.dumps({'a': [1, -2, 2**40, 1.5, None, True, (3,)], 'b': 'é'}, protocol)
        let protocol_2 = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01J\xfe\xff\xff\xff\x8a\x06\x00\x00\x00\x00\x00\x01\
            G?\xf8\x00\x00\x00\x00\x00\x00N\x88K\x03\x85q\x03eX\x01\x00\x00\x00bq\x04X\x02\x00\x00\x00\xc3\xa9q\x05u.";
        let protocol_4 = b"\x80\x04\x95\x36\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xff\
            \x8a\x06\x00\x00\x00\x00\x00\x01G?\xf8\x00\x00\x00\x00\x00\x00N\x88K\x03\x85\x94e\x8c\x01b\x94\x8c\x02\xc3\xa9\x94u.";
        for bytes in [&protocol_2[..], protocol_4] {
            let pickle = Pickle::read(bytes).expect("plain data");
            let list = pickle.get(pickle.root(), "a").expect("key a");
            let Value::List(items) = pickle.value(list) else { panic!("a list") };
            let values: Vec<_> = items.iter().map(|&id| pickle.value(id).clone()).collect();
            let ints = [1, -2, 1 << 40].map(Value::Int);
            assert_eq!(values[..3], ints);
            assert_eq!(values[3..6], [Value::Float(1.5), Value::None, Value::Bool(true)]);
            assert!(matches!(&values[6], Value::List(inner) if inner.len() == 1));
            let text = pickle.get(pickle.root(), "b").map(|id| pickle.value(id).clone());
            assert_eq!(text, Some(Value::Text("é".to_string())));
        }
    }

    #[test]
    fn code_is_refused_by_name_and_place() {
        let cases: [(&[u8], usize, &str); 6] = [
            (b"\x80\x02cos\nsystem\n", 2, "GLOBAL"),
            (b"\x80\x04\x8c\x02os\x8c\x06system\x93", 14, "STACK_GLOBAL"),
            (b"\x80\x02N)R.", 4, "REDUCE"),
            (b"\x80\x02N}b.", 4, "BUILD"),
            (b"\x80\x02N)\x81.", 4, "NEWOBJ"),
            (b"(lp0\n.", 2, "protocol 2 or later"),
        ];
        for (bytes, offset, part) in cases {
            let error = Pickle::read(bytes).expect_err("refused");
            assert!(error.offset == offset && error.what.contains(part), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn damage_and_bombs_are_errors() {
        let nested = [b"\x80\x02".to_vec(), b"](".repeat(1000)].concat();
        let cases: [(&[u8], &str); 10] = [
            (b"", "ends within"),
            (b"\x80\x02", "ends within"),
            (b"\x80\x09.", "protocol 9"),
            (b"\x80\x02.", "missing on the stack"),
            (b"\x80\x02X\xff\xff\xff\xff.", "ends within"),
            (b"\x80\x02N(a.", "missing on the stack"),
            (b"\x80\x02]r\xff\xff\xff\x7f.", "memo 2147483647"),
            (b"\x80\x02h\x00.", "never filled"),
            (b"\x80\x02}(K\x01u.", "key has no value"),
            (&nested, "within each other"),
        ];
        for (bytes, part) in cases {
            let error = Pickle::read(bytes).expect_err("damaged");
            assert!(error.what.contains(part), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn listed_names_are_values_and_others_are_refused() {
        // pickle.dumps(OrderedDict(a=Fraction(1, 2)), 2) and what it refers to.
        let bytes =
            b"\x80\x02ccollections\nOrderedDict\nq\x00)Rq\x01X\x01\x00\x00\x00acfractions\nFraction\n\
            X\x03\x00\x00\x001/2\x85Rs}b.";
        let names = ["collections.OrderedDict", "fractions.Fraction"];
        let pickle = Pickle::read_with(bytes, &names).expect("both are listed");
        let half = pickle.get(pickle.root(), "a").map(|id| pickle.value(id).clone());
        let Some(Value::Call(name, operands)) = half else { panic!("{half:?}") };
        assert_eq!((&name[..], pickle.value(operands)), ("fractions.Fraction", &Value::List(vec![5])));
        let error = Pickle::read_with(bytes, &names[..1]).expect_err("one is not");
        assert!(error.what.contains("`fractions.Fraction`"), "{error}");
        assert!(Pickle::read(bytes).is_err());
        let stacked = b"\x80\x04\x8c\x02os\x8c\x06system\x93.";
        assert!(Pickle::read_with(stacked, &["os.path"]).expect_err("other").what.contains("`os.system`"));
        for bytes in [&b"\x80\x02R."[..], b"\x80\x02N)R.", b"\x80\x02}b.", b"\x80\x02cos", b"\x80\x02Q."] {
            assert!(Pickle::read_with(bytes, &names).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_list_may_contain_itself() {
        let pickle = Pickle::read(b"\x80\x02]q\x00h\x00a.").expect("legal");
        assert_eq!(pickle.value(pickle.root()), &Value::List(vec![pickle.root()]));
    }
}

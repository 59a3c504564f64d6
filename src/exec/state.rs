//! A session's state in host memory.

use std::collections::{BTreeMap, BTreeSet};

use super::Session;
use super::arenas::lasting_storage;
use super::state_layout::StateLayout;
use crate::error::{Error, Result};
use crate::graph::{Class, Param};
use crate::maybe_async;
use crate::random;
use crate::units::Bytes;

/// A copy in host memory of what a run needs to continue on any device: parameters, optimizer state and the
/// number of steps. It outlives its session and the session's device ([`Error::DeviceLost`]).
#[derive(Clone, Debug, PartialEq)]
pub struct SessionState {
    steps: u64,
    /// By name, as [`Session::parameter`] returns them.
    tensors: BTreeMap<String, Vec<f32>>,
}

impl SessionState {
    /// Returns the number of training steps made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns its size in host memory: 4 bytes for each element, also of 16-bit tensors.
    pub fn bytes(&self) -> Bytes {
        Bytes(self.tensors.values().map(|data| 4 * data.len() as u64).sum())
    }
}

impl Session {
    /// Copies parameters, optimizer state and the number of steps to host memory. Waits for the steps submitted
    /// so far. If the state is sharded, all ranks must call it, and each gets all of it.
    ///
    /// # Errors
    /// [`Error::DeviceLost`]; as [`Session::parameter`] for sharded state.
    #[maybe_async]
    pub async fn state(&mut self) -> Result<SessionState> {
        let mut tensors = BTreeMap::new();
        for name in self.state_names() {
            let data = self.parameter(&name).await?;
            tensors.insert(name, data);
        }
        Ok(SessionState { steps: self.steps(), tensors })
    }

    /// Returns a hash of the bits of all parameters, in the order of their registration. Waits for the steps submitted
    /// so far.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn parameters_hash(&mut self) -> Result<u64> {
        let parameters = self.state_plan.graph().parameters.iter().filter(|param| !param.is_cache());
        let names = parameters.map(|param| param.name().to_owned());
        self.hash(names.collect()).await
    }

    /// Whether each rank has a part of the parameters or, if that is asked, of the optimizer state.
    pub(crate) fn is_sharded(&self, optimizer_state: bool) -> bool {
        let asked = |class| class == Class::Parameter || (optimizer_state && class == Class::Optimizer);
        self.state_plan.graph().values.iter().any(|value| asked(value.class) && value.part_of.is_some())
    }

    /// Returns a hash of the bits of parameters and of optimizer state that every rank has.
    #[maybe_async]
    pub(super) async fn state_hash(&mut self) -> Result<u64> {
        let mut names = self.state_names();
        let graph = self.state_plan.graph();
        let parts = graph.values.iter().filter(|value| value.part_of.is_some());
        let parts: BTreeSet<&str> = parts.map(|value| value.name.as_str()).collect();
        names.retain(|name| !parts.contains(name.as_str()));
        self.hash(names).await
    }

    #[maybe_async]
    async fn hash(&mut self, names: Vec<String>) -> Result<u64> {
        let mut hash = 0;
        for name in names {
            for number in self.parameter(&name).await? {
                hash = random::mix(hash ^ u64::from(number.to_bits()));
            }
        }
        Ok(hash)
    }

    fn state_names(&self) -> Vec<String> {
        let plan = &self.state_plan;
        // Parameters are the first storages, in the order of registration.
        let kept = |i: usize| !plan.graph().parameters.get(i).is_some_and(Param::is_cache);
        let storages = plan.program.storages.iter().enumerate();
        storages.filter(|(i, s)| s.is_state() && kept(*i)).map(|(_, s)| s.name.clone()).collect()
    }

    /// Replaces parameters, optimizer state and the number of steps, by those of another session of the same
    /// model and optimizer. A session that only evaluates takes the parameters.
    ///
    /// # Errors
    /// [`Error::PlanMismatch`] with what this session has and `state` does not, before anything is changed;
    /// [`Error::DeviceLost`].
    #[maybe_async]
    pub async fn set_state(&mut self, state: &SessionState) -> Result<()> {
        let mut tensors = Vec::new();
        for storage in self.state_plan.program.storages.iter().filter(|storage| storage.is_state()) {
            let name = &storage.name;
            let elements =
                StateLayout::of(&self.state_plan, lasting_storage(&self.state_plan, name)?).whole();
            let given = state.tensors.get(name);
            match given.filter(|data| data.len() as u64 == elements) {
                Some(data) => tensors.push((name.clone(), data)),
                None => {
                    let has = given.map_or("nothing".to_owned(), |data| data.len().to_string());
                    let message =
                        format!("`{name}` has {elements} elements, the state has {has} of that name");
                    return Err(Error::PlanMismatch(message));
                }
            }
        }
        for (name, data) in tensors {
            self.set_parameter(&name, data).await?;
        }
        self.set_steps(state.steps);
        Ok(())
    }
}

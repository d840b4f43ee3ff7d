//! Signals as pods name them and as the runtime numbers them. Pure.
//!
//! Upstream: signalNameToRuntimeEnum in pkg/kubelet/kuberuntime/helpers.go.

use cri::v1::Signal;

/// The signal of that name, such as `SIGRTMIN+3`.
pub fn named(name: &str) -> Option<Signal> {
    let signal = Signal::from_str_name(&name.replace('+', "PLUS").replace('-', "MINUS"));
    signal.filter(|signal| *signal != Signal::RuntimeDefault)
}

/// Its name in a pod; a runtime that knows nothing of signals says its default.
pub fn name(signal: Signal) -> Option<String> {
    let name = signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-");
    (signal != Signal::RuntimeDefault).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_has_one_name() {
        assert_eq!(named("SIGUSR1"), Some(Signal::Sigusr1));
        assert_eq!(named("SIGRTMIN+3"), Some(Signal::Sigrtminplus3));
        assert_eq!(name(Signal::Sigrtmaxminus14).as_deref(), Some("SIGRTMAX-14"));
        for number in 1..=65 {
            let signal = Signal::try_from(number).expect("a signal");
            let told = name(signal).expect("a name");
            assert!(told.starts_with("SIG"), "{told}");
            assert_eq!(named(&told), Some(signal));
        }
    }

    #[test]
    fn a_runtime_that_does_not_know() {
        assert_eq!(name(Signal::RuntimeDefault), None);
        assert_eq!(named("RUNTIME_DEFAULT"), None);
        assert_eq!(named("SIGNOT"), None);
    }
}

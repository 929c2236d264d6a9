//! Probes and lifecycle hooks. Pure.

use super::int_or_string::IntOrString;
use super::texts::Texts;

#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    pub handler: ProbeHandler,
    pub initial_delay_seconds: i32,
    pub timeout_seconds: i32,
    pub period_seconds: i32,
    pub success_threshold: i32,
    pub failure_threshold: i32,
    pub termination_grace_period_seconds: Option<i64>,
}

one_of! {
    pub enum ProbeHandler {
        Exec(ExecAction) = "exec",
        Grpc(GrpcAction) = "grpc",
        HttpGet(HttpGetAction) = "httpGet",
        TcpSocket(TcpSocketAction) = "tcpSocket",
    }
}

one_of_object!(Probe {
    initial_delay_seconds: i32,
    timeout_seconds: i32,
    period_seconds: i32,
    success_threshold: i32,
    failure_threshold: i32,
    termination_grace_period_seconds: Option<i64>,
    @one handler: ProbeHandler, default None
});

object! {
    pub struct Lifecycle {
        post_start: Option<LifecycleHandler>,
        pre_stop: Option<LifecycleHandler>,
        stop_signal: Option<String>,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct LifecycleHandler {
    pub action: LifecycleAction,
}

one_of! {
    pub enum LifecycleAction {
        Exec(ExecAction) = "exec",
        HttpGet(HttpGetAction) = "httpGet",
        Sleep(SleepAction) = "sleep",
        /// Accepted by the API for compatibility; fails when the hook runs, as upstream.
        TcpSocket(TcpSocketAction) = "tcpSocket",
    }
}

one_of_object!(LifecycleHandler { @one action: LifecycleAction, default None });

object! {
    pub struct ExecAction {
        command: Texts,
    }
}

object! {
    pub struct HttpGetAction {
        path: String,
        port: IntOrString,
        host: String,
        scheme: UriScheme,
        http_headers: Vec<HttpHeader>,
    }
}

words! {
    #[derive(Default)]
    pub enum UriScheme {
        #[default]
        Http = "HTTP",
        Https = "HTTPS",
    }
}

object! {
    pub struct HttpHeader {
        @always {
            name: String,
            value: String,
        }
    }
}

object! {
    pub struct TcpSocketAction {
        port: IntOrString,
        host: String,
    }
}

object! {
    pub struct GrpcAction {
        port: i32,
        service: Option<String>,
    }
}

object! {
    pub struct SleepAction {
        @always {
            seconds: i64,
        }
    }
}

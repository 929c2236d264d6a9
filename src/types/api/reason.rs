//! The reasons of conditions, container states and events. Pure.

use std::borrow::Cow;
use std::fmt;

use super::decode::{Decode, DecodeContext, DecodeError, Input, text};
use super::encode::{Encode, Json};

/// A CamelCase reason. Runtimes and other controllers use reasons that are not listed here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reason(Cow<'static, str>);

impl Reason {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident = $word:literal;)*) => {
        impl Reason {
            $($(#[$meta])* pub const $name: Self = Self(Cow::Borrowed($word));)*

            /// The words above: a decoded reason that is one of them needs no allocation.
            const KNOWN: &'static [&'static str] = &[$($word),*];
        }
    };
}

// Waiting containers.
reasons! {
    CONTAINER_CREATING = "ContainerCreating";
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff";
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError";
    CREATE_CONTAINER_ERROR = "CreateContainerError";
    ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull";
    ERR_IMAGE_PULL = "ErrImagePull";
    IMAGE_INSPECT_ERROR = "ImageInspectError";
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff";
    IMAGE_PULL_WAITING = "ImagePullWaiting";
    INVALID_IMAGE_NAME = "InvalidImageName";
    POD_INITIALIZING = "PodInitializing";
    POST_START_HOOK_ERROR = "PostStartHookError";
    PRE_CREATE_HOOK_ERROR = "PreCreateHookError";
    PRE_START_HOOK_ERROR = "PreStartHookError";
    REGISTRY_UNAVAILABLE = "RegistryUnavailable";
    RUN_CONTAINER_ERROR = "RunContainerError";
    SIGNATURE_VALIDATION_FAILED = "SignatureValidationFailed";

    // Terminated containers.
    COMPLETED = "Completed";
    CONTAINER_CANNOT_RUN = "ContainerCannotRun";
    CONTAINER_STATUS_UNKNOWN = "ContainerStatusUnknown";
    ERROR = "Error";
    OOM_KILLED = "OOMKilled";

    // Pod conditions.
    CONTAINERS_NOT_INITIALIZED = "ContainersNotInitialized";
    CONTAINERS_NOT_READY = "ContainersNotReady";
    POD_COMPLETED = "PodCompleted";
    POD_FAILED = "PodFailed";
    READINESS_GATES_NOT_READY = "ReadinessGatesNotReady";
    RESTART_ALL_CONTAINERS_STARTED = "RestartAllContainersStarted";
    RESTARTING_ALL_CONTAINERS = "RestartingAllContainers";
    TERMINATION_BY_KUBELET = "TerminationByKubelet";
    UNKNOWN_CONTAINER_STATUSES = "UnknownContainerStatuses";

    // Jobs and CronJobs.
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded";
    FAILED_CREATE = "FailedCreate";
    JOB_ALREADY_ACTIVE = "JobAlreadyActive";
    RESUMED = "Resumed";
    SUCCESSFUL_CREATE = "SuccessfulCreate";
    SUCCESSFUL_DELETE = "SuccessfulDelete";
    SUSPENDED = "Suspended";
    TOO_MANY_MISSED_TIMES = "TooManyMissedTimes";
    UNKNOWN_TIME_ZONE = "UnknownTimeZone";

    // Pods that the node rejects or terminates.
    APP_ARMOR = "AppArmor";
    DEFERRED = "Deferred";
    INFEASIBLE = "Infeasible";
    DEADLINE_EXCEEDED = "DeadlineExceeded";
    EVICTED = "Evicted";
    NODE_AFFINITY = "NodeAffinity";
    NODE_NAME = "NodeName";
    EMPTY_POD_SHARED_POOL_ERROR = "EmptyPodSharedPoolError";
    NODE_PORTS = "NodePorts";
    NODE_SHUTDOWN = "NodeShutdown";
    OUT_OF_CPU = "OutOfcpu";
    INIT_CONTAINER_RESTART_POLICY_FORBIDDEN = "InitContainerRestartPolicyForbidden";
    OUT_OF_EPHEMERAL_STORAGE = "OutOfephemeral-storage";
    OUT_OF_MEMORY = "OutOfmemory";
    OUT_OF_PODS = "OutOfpods";
    POD_FEATURE_UNSUPPORTED = "PodFeatureUnsupported";
    POD_LEVEL_RESOURCES_NOT_SUPPORTED = "PodLevelResourcesNotSupported";
    POD_NAME_TOO_LONG = "PodNameTooLong";
    POD_OS_NOT_SUPPORTED = "PodOSNotSupported";
    POD_OS_SELECTOR_NODE_LABEL_DOES_NOT_MATCH = "PodOSSelectorNodeLabelDoesNotMatch";
    SMT_ALIGNMENT_ERROR = "SMTAlignmentError";
    SUPPLEMENTAL_GROUPS_POLICY_NOT_SUPPORTED = "SupplementalGroupsPolicyNotSupported";
    SYSCTL_FORBIDDEN = "SysctlForbidden";
    TAINT_TOLERATION = "TaintToleration";
    TERMINATED = "Terminated";
    TOPOLOGY_AFFINITY_ERROR = "TopologyAffinityError";
    UNEXPECTED_ADMISSION_ERROR = "UnexpectedAdmissionError";
    VOLUME_ATTACHMENT_LIMIT_EXCEEDED = "VolumeAttachmentLimitExceeded";

    // Events.
    ALREADY_MOUNTED_VOLUME = "AlreadyMountedVolume";
    BACK_OFF = "BackOff";
    CERTIFICATE_EXPIRED = "CertificateExpired";
    CERTIFICATE_ISSUED = "CertificateIssued";
    CERTIFICATE_OVERDUE_FOR_REFRESH = "CertificateOverdueForRefresh";
    CERTIFICATE_REQUEST_FAILED = "CertificateRequestFailed";
    CGROUP_V1 = "CgroupV1";
    CHECK_LIMITS_FOR_RESOLV_CONF = "CheckLimitsForResolvConf";
    CONTAINER_GC_FAILED = "ContainerGCFailed";
    CONTAINER_SURVIVED = "ContainerSurvived";
    CREATED = "Created";
    DENIED = "Denied";
    DNS_CONFIG_FORMING = "DNSConfigForming";
    EVICTION_THRESHOLD_MET = "EvictionThresholdMet";
    EXCEEDED_GRACE_PERIOD = "ExceededGracePeriod";
    FAILED = "Failed";
    FAILED_ATTACH_VOLUME = "FailedAttachVolume";
    FAILED_CREATE_POD_CONTAINER = "FailedCreatePodContainer";
    FAILED_CREATE_POD_SANDBOX = "FailedCreatePodSandBox";
    FAILED_CLEAN_UP = "FailedCleanUp";
    FAILED_KILL_POD = "FailedKillPod";
    FAILED_MAP_VOLUME = "FailedMapVolume";
    FAILED_MOUNT = "FailedMount";
    FAILED_PREPARE_DYNAMIC_RESOURCES = "FailedPrepareDynamicResources";
    FAILED_NODE_ALLOCATABLE_ENFORCEMENT = "FailedNodeAllocatableEnforcement";
    FAILED_POD_SANDBOX_STATUS = "FailedPodSandBoxStatus";
    FAILED_POST_START_HOOK = "FailedPostStartHook";
    FAILED_PRE_STOP_HOOK = "FailedPreStopHook";
    FAILED_SYNC = "FailedSync";
    FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET = "FailedToRetrieveImagePullSecret";
    FAILED_VALIDATION = "FailedValidation";
    FILE_SYSTEM_RESIZE_FAILED = "FileSystemResizeFailed";
    FILE_SYSTEM_RESIZE_SUCCESSFUL = "FileSystemResizeSuccessful";
    FREE_DISK_SPACE_FAILED = "FreeDiskSpaceFailed";
    IMAGE_GC_FAILED = "ImageGCFailed";
    INSPECT_FAILED = "InspectFailed";
    INVALID_DISK_CAPACITY = "InvalidDiskCapacity";
    INVALID_IMAGE_ID = "InvalidImageID";
    KILLING = "Killing";
    KUBELET_HAS_DISK_PRESSURE = "KubeletHasDiskPressure";
    KUBELET_HAS_INSUFFICIENT_MEMORY = "KubeletHasInsufficientMemory";
    KUBELET_HAS_INSUFFICIENT_PID = "KubeletHasInsufficientPID";
    KUBELET_HAS_NO_DISK_PRESSURE = "KubeletHasNoDiskPressure";
    KUBELET_HAS_SUFFICIENT_MEMORY = "KubeletHasSufficientMemory";
    KUBELET_HAS_SUFFICIENT_PID = "KubeletHasSufficientPID";
    KUBELET_NOT_READY = "KubeletNotReady";
    KUBELET_READY = "KubeletReady";
    KUBELET_SETUP_FAILED = "KubeletSetupFailed";
    LIFECYCLE_HTTP_FALLBACK = "LifecycleHTTPFallback";
    MISSING_CLUSTER_DNS = "MissingClusterDNS";
    NETWORK_NOT_READY = "NetworkNotReady";
    NODE_ALLOCATABLE_ENFORCED = "NodeAllocatableEnforced";
    NODE_HAS_DISK_PRESSURE = "NodeHasDiskPressure";
    NODE_HAS_INSUFFICIENT_MEMORY = "NodeHasInsufficientMemory";
    NODE_HAS_INSUFFICIENT_PID = "NodeHasInsufficientPID";
    NODE_HAS_NO_DISK_PRESSURE = "NodeHasNoDiskPressure";
    NODE_HAS_SUFFICIENT_MEMORY = "NodeHasSufficientMemory";
    NODE_HAS_SUFFICIENT_PID = "NodeHasSufficientPID";
    NODE_NOT_READY = "NodeNotReady";
    NODE_NOT_SCHEDULABLE = "NodeNotSchedulable";
    NODE_READY = "NodeReady";
    NODE_SCHEDULABLE = "NodeSchedulable";
    NOT_REPLACED = "NotReplaced";
    ON_TRIAL = "OnTrial";
    STOPPED = "Stopped";
    POSSIBLE_MEMORY_BACKED_VOLUMES_ON_DISK = "PossibleMemoryBackedVolumesOnDisk";
    PREEMPTING = "Preempting";
    PROBE_WARNING = "ProbeWarning";
    PULLED = "Pulled";
    PULLING = "Pulling";
    REBOOTED = "Rebooted";
    RESIZE_COMPLETED = "ResizeCompleted";
    RESIZE_DEFERRED = "ResizeDeferred";
    RESIZE_ERROR = "ResizeError";
    RESIZE_INFEASIBLE = "ResizeInfeasible";
    RESIZE_STARTED = "ResizeStarted";
    AGENT_UPDATE_ACCEPTED = "AgentUpdateAccepted";
    AGENT_UPDATE_REJECTED = "AgentUpdateRejected";
    SANDBOX_CHANGED = "SandboxChanged";
    SHUTDOWN = "Shutdown";
    STARTED = "Started";
    STARTING = "Starting";
    SYSTEM_OOM = "SystemOOM";
    TAG_LOOKUP_FAILED = "TagLookupFailed";
    TAG_MOVED = "TagMoved";
    TOKEN_EXPIRED = "TokenExpired";
    UNHEALTHY = "Unhealthy";
    UPDATE_ACCEPTED = "UpdateAccepted";
    UPDATE_HELD = "UpdateHeld";
    UPDATE_LOCK_EXPIRED = "UpdateLockExpired";
    UPDATE_LOCK_UNUSABLE = "UpdateLockUnusable";
    UPDATE_REJECTED = "UpdateRejected";
    UPDATE_WAITS = "UpdateWaits";
    VOLUME_RESIZE_FAILED = "VolumeResizeFailed";
    VOLUME_PERMISSION_CHANGE_IN_PROGRESS = "VolumePermissionChangeInProgress";

    // Of the board: the conditions of the node, and their events.
    BATTERY_LOW = "BatteryLow";
    NO_BATTERY_LOW = "NoBatteryLow";
    CLOCK_UNSET = "ClockUnset";
    NO_CLOCK_UNSET = "NoClockUnset";
    FLASH_WORN = "FlashWorn";
    NO_FLASH_WORN = "NoFlashWorn";
    ON_BATTERY = "OnBattery";
    OVERHEATED = "Overheated";
    NO_OVERHEATED = "NoOverheated";
    READONLY_FILESYSTEM = "ReadonlyFilesystem";
    NO_READONLY_FILESYSTEM = "NoReadonlyFilesystem";
    STORAGE_ERRORS = "StorageErrors";
    NO_STORAGE_ERRORS = "NoStorageErrors";
    UNDERVOLTAGE = "Undervoltage";
    NO_UNDERVOLTAGE = "NoUndervoltage";
}

impl From<String> for Reason {
    fn from(word: String) -> Self {
        match Self::KNOWN.iter().find(|reason| **reason == word) {
            Some(reason) => Self(Cow::Borrowed(reason)),
            None => Self(Cow::Owned(word)),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Decode for Reason {
    fn decode(input: Input<'_>, _context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        text(input).map(Self::from)
    }
}

impl Encode for Reason {
    fn write(&self, json: &mut Json) {
        json.string(&self.0);
    }

    fn omit(&self) -> bool {
        self.is_empty()
    }
}

//! Volumes and their sources. Pure.

use serde_json::Value;

use super::affinity::LabelSelector;
use super::container::{ObjectFieldSelector, PullPolicy, ResourceFieldSelector};
use super::decode::{Decode, DecodeContext, DecodeError, Entry, Input, Object, read_object};
use super::encode::{Encode, Json};
use super::map::Map;
use super::pod::LocalObjectReference;
use super::quantity::Quantity;
use super::storage_medium::StorageMedium;

#[derive(Clone, Debug, PartialEq)]
pub struct Volume {
    pub name: String,
    pub source: VolumeSource,
}

one_of! {
    pub enum VolumeSource {
        AwsElasticBlockStore(Box<Value>) = "awsElasticBlockStore",
        AzureDisk(Box<Value>) = "azureDisk",
        AzureFile(Box<Value>) = "azureFile",
        CephFs(Box<Value>) = "cephfs",
        Cinder(Box<Value>) = "cinder",
        ConfigMap(Box<ConfigMapVolumeSource>) = "configMap",
        Csi(Box<CsiVolumeSource>) = "csi",
        DownwardApi(Box<DownwardApiVolumeSource>) = "downwardAPI",
        EmptyDir(Box<EmptyDirVolumeSource>) = "emptyDir",
        Ephemeral(Box<Value>) = "ephemeral",
        Fc(Box<Value>) = "fc",
        FlexVolume(Box<Value>) = "flexVolume",
        Flocker(Box<Value>) = "flocker",
        GcePersistentDisk(Box<Value>) = "gcePersistentDisk",
        GitRepo(Box<Value>) = "gitRepo",
        Glusterfs(Box<Value>) = "glusterfs",
        HostPath(Box<HostPathVolumeSource>) = "hostPath",
        Image(Box<ImageVolumeSource>) = "image",
        Iscsi(Box<Value>) = "iscsi",
        Nfs(Box<NfsVolumeSource>) = "nfs",
        PersistentVolumeClaim(Box<PersistentVolumeClaimVolumeSource>) = "persistentVolumeClaim",
        PhotonPersistentDisk(Box<Value>) = "photonPersistentDisk",
        PortworxVolume(Box<Value>) = "portworxVolume",
        Projected(Box<ProjectedVolumeSource>) = "projected",
        Quobyte(Box<Value>) = "quobyte",
        Rbd(Box<Value>) = "rbd",
        ScaleIo(Box<Value>) = "scaleIO",
        Secret(Box<SecretVolumeSource>) = "secret",
        StorageOs(Box<Value>) = "storageos",
        VsphereVolume(Box<Value>) = "vsphereVolume",
    }
    else Unknown
}

// The API makes a volume without a source an emptyDir. One with an unknown source is none: its data would be lost.
one_of_object!(Volume {
    name: String,
    @one source: VolumeSource, default Some(VolumeSource::EmptyDir(Box::default()))
});

object! {
    pub struct EmptyDirVolumeSource {
        medium: StorageMedium,
        size_limit: Option<Quantity>,
    }
}

object! {
    pub struct HostPathVolumeSource {
        @always {
            path: String,
            kind: HostPathType = "type",
        }
    }
}

words! {
    #[derive(Default)]
    pub enum HostPathType {
        /// No check before the mount.
        #[default]
        Unset = "",
        BlockDevice = "BlockDevice",
        CharDevice = "CharDevice",
        Directory = "Directory",
        DirectoryOrCreate = "DirectoryOrCreate",
        File = "File",
        FileOrCreate = "FileOrCreate",
        Socket = "Socket",
    }
}

object! {
    pub struct ConfigMapVolumeSource {
        name: String,
        items: Vec<KeyToPath>,
        default_mode: Option<i32>,
        optional: Option<bool>,
    }
}

object! {
    pub struct SecretVolumeSource {
        secret_name: String,
        items: Vec<KeyToPath>,
        default_mode: Option<i32>,
        optional: Option<bool>,
    }
}

object! {
    pub struct KeyToPath {
        key: String,
        path: String,
        mode: Option<i32>,
    }
}

object! {
    pub struct DownwardApiVolumeSource {
        items: Vec<DownwardApiVolumeFile>,
        default_mode: Option<i32>,
    }
}

object! {
    pub struct DownwardApiVolumeFile {
        @always {
            path: String,
        }
        field_ref: Option<ObjectFieldSelector>,
        resource_field_ref: Option<Box<ResourceFieldSelector>>,
        mode: Option<i32>,
    }
}

object! {
    pub struct ProjectedVolumeSource {
        sources: Vec<VolumeProjection>,
        default_mode: Option<i32>,
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct VolumeProjection {
    /// Absent in an empty object, which the API accepts, and which projects nothing.
    pub source: Option<ProjectionSource>,
}

one_of! {
    pub enum ProjectionSource {
        ClusterTrustBundle(Box<ClusterTrustBundleProjection>) = "clusterTrustBundle",
        ConfigMap(ObjectProjection) = "configMap",
        DownwardApi(DownwardApiProjection) = "downwardAPI",
        PodCertificate(Box<Value>) = "podCertificate",
        Secret(ObjectProjection) = "secret",
        ServiceAccountToken(ServiceAccountTokenProjection) = "serviceAccountToken",
    }
}

impl Decode for VolumeProjection {
    fn decode(input: Input<'_>, context: DecodeContext<'_>) -> Result<Self, DecodeError> {
        let mut projection = Self { source: None };
        read_object(&mut projection, input, context)?;
        Ok(projection)
    }
}

impl Object for VolumeProjection {
    fn read(&mut self, entry: Entry<'_>) -> Result<(), DecodeError> {
        ProjectionSource::read(&mut self.source, entry)
    }
}

impl Encode for VolumeProjection {
    fn write(&self, json: &mut Json) {
        json.begin_object();
        if let Some(source) = &self.source {
            source.write(json);
        }
        json.end_object();
    }
}

#[cfg(test)]
impl super::fields::KnownFields for VolumeProjection {
    fn visit(fields: &mut super::fields::Fields) {
        fields.note(super::fields::Kind::Object);
        ProjectionSource::visit(fields);
    }
}

object! {
    /// Selects trusted certificates by bundle name or by signer.
    pub struct ClusterTrustBundleProjection {
        @always {
            path: String,
        }
        name: Option<String>,
        signer_name: Option<String>,
        label_selector: Option<Box<LabelSelector>>,
        optional: Option<bool>,
    }
}

object! {
    /// A ConfigMap or a Secret in a projected volume.
    pub struct ObjectProjection {
        name: String,
        items: Vec<KeyToPath>,
        optional: Option<bool>,
    }
}

object! {
    pub struct DownwardApiProjection {
        items: Vec<DownwardApiVolumeFile>,
    }
}

object! {
    pub struct ServiceAccountTokenProjection {
        audience: String,
        expiration_seconds: Option<i64>,
        path: String,
    }
}

object! {
    pub struct ImageVolumeSource {
        reference: String,
        pull_policy: Option<PullPolicy>,
    }
}

object! {
    pub struct NfsVolumeSource {
        @always {
            server: String,
            path: String,
        }
        read_only: bool,
    }
}

object! {
    pub struct PersistentVolumeClaimVolumeSource {
        claim_name: String,
        read_only: bool,
    }
}

object! {
    pub struct CsiVolumeSource {
        driver: String,
        read_only: Option<bool>,
        fs_type: Option<String>,
        volume_attributes: Map<String>,
        node_publish_secret_ref: Option<LocalObjectReference>,
    }
}

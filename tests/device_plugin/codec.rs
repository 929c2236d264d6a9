//! Messages on tonic's wire.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::BufMut as _;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Encodes `Out` and decodes `In`.
pub(crate) struct Prost<Out, In> {
    /// Encodes bytes that are no message.
    is_garbled: bool,
    types: PhantomData<(Out, In)>,
}

impl<Out, In> Prost<Out, In> {
    pub(crate) fn new(is_garbled: bool) -> Self {
        Self { is_garbled, types: PhantomData }
    }
}

impl<Out, In> Default for Prost<Out, In> {
    fn default() -> Self {
        Self::new(false)
    }
}

impl<Out, In> Codec for Prost<Out, In>
where
    Out: Message + 'static,
    In: Message + Default + 'static,
{
    type Encode = Out;
    type Decode = In;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::new(self.is_garbled)
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<Out: Message, In> Encoder for Prost<Out, In> {
    type Item = Out;
    type Error = Status;

    fn encode(&mut self, item: Out, buf: &mut EncodeBuf<'_>) -> Result<(), Status> {
        if self.is_garbled {
            buf.put_slice(b"\xff\xff\xff");
            return Ok(());
        }
        item.encode(buf).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<Out, In: Message + Default> Decoder for Prost<Out, In> {
    type Item = In;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<In>, Status> {
        In::decode(buf).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

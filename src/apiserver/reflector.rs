//! Follows a list: what there is, then every change of it, whatever becomes of the connection.

use async_channel::Sender;

use super::ApiError;
use super::client::Client;
use super::reflection::{Ask, Change, Collection, Reflection};
use super::request::Request;
use super::watch_event::Lines;
use crate::error::ErrorChain;
use crate::rt;

/// Runs until nobody listens any more. The listener's pace is the server's: what it does not take is not asked for.
pub(crate) async fn reflect(client: Client, collection: Collection, listener: Sender<Change>) {
    let path = collection.path.clone();
    let mut reflection = Reflection::new(collection);
    let mut away = false;
    let mut history = client.histories().changes();
    while !listener.is_closed() {
        if std::mem::replace(&mut history, client.histories().changes()) != history {
            reflection.begin_anew();
        }
        let done = match reflection.ask(rt::random()) {
            Ask::List(request) => list(&client, &request, &mut reflection, &listener).await,
            Ask::Watch(request) => {
                let begun_anew = async {
                    client.histories().beyond(history).await;
                    Ok(())
                };
                rt::either(begun_anew, watch(&client, &request, &mut reflection, &listener)).await
            }
        };
        let wait = match done {
            Ok(()) => {
                away = false;
                reflection.ended()
            }
            Err(error) => {
                log!(debug, "list or watch broken off", path = path, error = ErrorChain(&error));
                let wait = reflection.failed(&error);
                if !wait.is_zero() && !std::mem::replace(&mut away, true) {
                    // Who does not listen ends this loop.
                    let _ = listener.send(Change::Away(ErrorChain(&error).to_string())).await;
                }
                wait
            }
        };
        if !wait.is_zero() {
            rt::sleep(crate::time::jitter(wait, 1.0, rt::random())).await;
        }
    }
}

async fn list(
    client: &Client,
    request: &Request,
    reflection: &mut Reflection,
    listener: &Sender<Change>,
) -> Result<(), ApiError> {
    let answer = client.send(request).await?;
    if let Some(change) = reflection.listed(answer.json()?)? {
        let _ = listener.send(change).await;
    }
    Ok(())
}

async fn watch(
    client: &Client,
    request: &Request,
    reflection: &mut Reflection,
    listener: &Sender<Change>,
) -> Result<(), ApiError> {
    let mut stream = client.open(request).await?;
    reflection.begun();
    let mut lines = Lines::default();
    while let Some(bytes) = stream.next().await? {
        lines.receive(bytes);
        while let Some(event) = lines.next()? {
            let Some(change) = reflection.watched(event) else { continue };
            if listener.send(change).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

//! The list of routes. Routers are built from it, and a test compares it with the table of access rights.
//!
//! axum does not reveal the routes of a router. Every router is therefore built as [`Routes`], which keeps the method and
//! the path of each route beside the router. `daemon/src/tests/access/table.txt` lists the same routes and the rights of each
//! kind of key; a route that is missing there fails the test.
//!
//! The router receives all handlers as one type, [`ErasedHandler`]: axum would otherwise compile its routing code again for each of
//! the handlers, which took a third of the build time of the interfaces.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::response::Response;
use axum::routing::{MethodFilter, any as any_method};
use axum::routing::{MethodRouter, on};

/// The method and the path of one route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// `ANY` if all methods are accepted.
    pub method: &'static str,
    /// With its variable parts in braces.
    pub path: String,
}

/// Routes that are served together.
#[derive(Debug)]
pub struct Routes<S> {
    router: Router<S>,
    served: Vec<Route>,
}

/// Handlers of one path, by method.
#[derive(Debug)]
pub struct Methods<S> {
    router: MethodRouter<S>,
    names: Vec<&'static str>,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A handler without its type.
struct ErasedHandler<S>(Arc<dyn Fn(Request, S) -> ResponseFuture + Send + Sync>);

impl<S> ErasedHandler<S> {
    fn new<H: Handler<T, S>, T>(handler: H) -> Self {
        Self(Arc::new(move |request, state| Box::pin(handler.clone().call(request, state))))
    }
}

impl<S> Clone for ErasedHandler<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> fmt::Debug for ErasedHandler<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErasedHandler")
    }
}

impl<S: Send + 'static> Handler<(), S> for ErasedHandler<S> {
    type Future = ResponseFuture;

    fn call(self, request: Request, state: S) -> ResponseFuture {
        (self.0)(request, state)
    }
}

impl<S: Clone + Send + Sync + 'static> Default for Routes<S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Clone + Send + Sync + 'static> Routes<S> {
    pub fn new() -> Self {
        Self { router: Router::new(), served: Vec::new() }
    }

    pub fn route(mut self, path: &str, methods: Methods<S>) -> Self {
        self.served.extend(methods.names.into_iter().map(|method| Route { method, path: path.to_owned() }));
        Self { router: self.router.route(path, methods.router), served: self.served }
    }

    pub fn merge(mut self, other: Self) -> Self {
        self.served.extend(other.served);
        Self { router: self.router.merge(other.router), served: self.served }
    }

    pub fn into_router(self) -> Router<S> {
        self.router
    }

    pub fn served(&self) -> &[Route] {
        &self.served
    }
}

macro_rules! methods {
    ($($name:ident $filter:ident),* $(,)?) => {
        $(
            pub fn $name<H, T, S>(handler: H) -> Methods<S>
            where
                H: Handler<T, S>,
                T: 'static,
                S: Clone + Send + Sync + 'static,
            {
                Methods { router: on(MethodFilter::$filter, ErasedHandler::new(handler)), names: vec![stringify!($filter)] }
            }
        )*

        impl<S: Clone + Send + Sync + 'static> Methods<S> {
            $(
                pub fn $name<H: Handler<T, S>, T: 'static>(self, handler: H) -> Self {
                    self.also(MethodFilter::$filter, stringify!($filter), handler)
                }
            )*
        }
    };
}

methods!(get GET, post POST, put PUT, patch PATCH, delete DELETE);

impl<S: Clone + Send + Sync + 'static> Methods<S> {
    /// Without this, `HEAD` is answered like `GET`, but without the body.
    pub fn head<H: Handler<T, S>, T: 'static>(self, handler: H) -> Self {
        self.also(MethodFilter::HEAD, "HEAD", handler)
    }

    fn also<H: Handler<T, S>, T: 'static>(
        mut self,
        filter: MethodFilter,
        name: &'static str,
        handler: H,
    ) -> Self {
        self.names.push(name);
        Self { router: self.router.on(filter, ErasedHandler::new(handler)), names: self.names }
    }
}

/// Accepts every method.
pub fn any<H, T, S>(handler: H) -> Methods<S>
where
    H: Handler<T, S>,
    T: 'static,
    S: Clone + Send + Sync + 'static,
{
    Methods { router: any_method(ErasedHandler::new(handler)), names: vec!["ANY"] }
}

//! A value with one owner, which alone writes it, and views through which others read it.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;

/// The owner's side. Writing needs `&mut`, so whoever borrows the owner can only read.
#[derive(Debug, Default)]
pub(crate) struct Owned<T>(Rc<RefCell<T>>);

/// Shows the owner's value as it is now. A `Ref` must not be held across an await.
#[derive(Debug)]
pub(crate) struct View<T>(Rc<RefCell<T>>);

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Rc::new(RefCell::new(value)))
    }

    pub(crate) fn read(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    pub(crate) fn write(&mut self) -> RefMut<'_, T> {
        self.0.borrow_mut()
    }

    pub(crate) fn view(&self) -> View<T> {
        View(Rc::clone(&self.0))
    }
}

impl<T> View<T> {
    pub(crate) fn read(&self) -> Ref<'_, T> {
        self.0.borrow()
    }
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

//! Functions that differ only in their names. Valgrind reports the cost of each function, and each is called once, so
//! that every case has its own count.

/// Function that runs the work it is given.
pub(crate) type Slot = fn(&mut dyn FnMut());

macro_rules! functions {
    ($($name:ident)*) => {
        $(
            #[inline(never)]
            fn $name(work: &mut dyn FnMut()) {
                work();
                // An optimising compiler makes one function of equal ones, and of a call at the end a jump.
                std::hint::black_box(concat!(module_path!(), stringify!($name)));
            }
        )*
        pub(super) const ALL: [super::super::Slot; 16] = [$($name),*];
    };
}

macro_rules! modules {
    ($($name:ident)*) => {
        $(
            mod $name {
                functions!(f0 f1 f2 f3 f4 f5 f6 f7 f8 f9 f10 f11 f12 f13 f14 f15);
            }
        )*
        pub(super) const ALL: [[super::Slot; 16]; 16] = [$($name::ALL),*];
    };
}

macro_rules! groups {
    ($($name:ident)*) => {
        $(
            mod $name {
                modules!(m0 m1 m2 m3 m4 m5 m6 m7 m8 m9 m10 m11 m12 m13 m14 m15);
            }
        )*
        static ALL: [[[Slot; 16]; 16]; 8] = [$($name::ALL),*];
    };
}

groups!(g0 g1 g2 g3 g4 g5 g6 g7);

/// Returns a function and its name in valgrind's output.
pub(crate) fn slot(number: usize) -> (Slot, String) {
    let (group, module, function) = (number / 256, number / 16 % 16, number % 16);
    (ALL[group][module][function], format!("linear::slots::g{group}::m{module}::f{function}"))
}

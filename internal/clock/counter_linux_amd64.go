package clock

// steady says that the counter ticks evenly, on all processors alike, and never stops.
var steady = invariant()

// counter reads the processor's time stamp counter.
//
//go:noescape
func counter() int64

// invariant asks the processor for bit 8 of EDX in leaf 0x8000_0007 of CPUID: Intel
// 64 and IA-32 Architectures Software Developer's Manual, volume 3, Invariant TSC.
//
//go:noescape
func invariant() bool

package acts

import "github.com/weirlimit/weir"

// The values of [weir.Kind], whose comment says what each does.
const (
	KindTake weir.Kind = iota
	KindRefund
	KindSettle
	KindRelease
	KindRenew
	KindReset
	KindRecord
	KindAmend
	KindWithdraw
)

// The values of [weir.Source], whose comment says what each stands for.
const (
	SourceNone weir.Source = iota
	SourceLimit
	SourceStore
	SourceShadow
	SourceDenyCache
	SourceLease
	SourceFallback
	SourceFailOpen
	SourceFailClosed
)

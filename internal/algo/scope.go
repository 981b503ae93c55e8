package algo

// A Scope says to whom the ID of an act belongs. Acts with equal Owners and IDs are about
// one take, whichever limits they list: after a change of the limits, an act about the take
// still changes what the take was charged, and a repeat of the take gets the first answer.
// Zero: the ID belongs to the keys. It is here because package weir imports no other package.
type Scope struct {
	// Owner names the caller and what it asks about, but none of its limits. Empty: no scope.
	Owner string
	// Asks is what the caller asks for, in any form: another text is other content. Without
	// a scope, the costs of the charges are.
	Asks string
	// Cost is the number of units that a settlement or a refund gives to limits that the
	// take was charged under and that the act does not list. Costs, if not nil, has a number
	// for each meter instead, and 0 for those that it lacks.
	Cost  int64
	Costs map[string]int64
}

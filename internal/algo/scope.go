package algo

// A Scope says to whom the ID of an act belongs. Acts with equal Owners and IDs are about
// one take, whichever limits they list. An act about a take changes only charges that it
// lists and that the take had. It is here because package weir imports no other package.
type Scope struct {
	// Owner names the caller and what it asks about, but none of its limits.
	Owner string
	// Asks is what the caller asks for, in any form: another text is other content. Empty:
	// the costs of the charges are.
	Asks string
}

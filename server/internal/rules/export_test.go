package rules

// MaxCompiled is the number of compiled limits in calls that are kept.
const MaxCompiled = maxCompiled

// CompiledCalls returns how many compiled limits in calls a set keeps.
func CompiledCalls(s *Set) int { return max(len(s.compiled.rules), len(s.compiled.ring)) }

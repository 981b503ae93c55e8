package chaos

var lateNodes, lateProcesses []lateness

type mutation struct{}

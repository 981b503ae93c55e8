// The timers of the process, as they are when the client is loaded. Tests of programs put others in their place, whose time stands
// still; a connection to a server goes on by the real ones.
export const { clearTimeout, setImmediate, setTimeout } = globalThis
export const now = performance.now.bind(performance)

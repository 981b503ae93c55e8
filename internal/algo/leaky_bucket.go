package algo

// leaky_bucket queues units and lets them out at Count per Period: its level is
// gcra's, and its queue Burst. A charge is granted if it fits into the queue, and
// has to wait until all that was there before it has drained: its delay is what
// gcra calls the time until fresh.

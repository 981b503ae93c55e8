-- leaky_bucket: counts as gcra does; what it grants has to wait until what was
-- there before has drained.

-- @age
-- @include gcra age

-- @wait
-- @include gcra wait

-- @fresh
-- @include gcra fresh

-- @delay
-- @include gcra fresh

-- @back
-- @include gcra back

-- @save
-- @include gcra save

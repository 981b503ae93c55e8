package replay

const (
	maxPoints   = 480
	narrowest   = 1_000_000 // µs
	largestLine = 6         // series of single limits in a chart
)

// A course counts events over a time of unknown length: its points become twice
// as wide whenever they are too many. Several courses share one axis.
type course struct{ counts []int64 }

// axis is the time axis of courses.
type axis struct {
	start, width int64 // µs
	points       int
	courses      []*course
}

func (x *axis) add() *course {
	c := new(course)
	x.courses = append(x.courses, c)
	return c
}

// index returns the point for an instant, which is not before the first one.
func (x *axis) index(at int64) int {
	if x.points == 0 {
		x.width = narrowest
		x.start = at - at%narrowest
	}
	for (at-x.start)/x.width >= maxPoints {
		x.widen()
	}
	i := int((at - x.start) / x.width)
	x.points = max(x.points, i+1)
	return i
}

func (x *axis) widen() {
	x.width *= 2
	x.points = (x.points + 1) / 2
	for _, c := range x.courses {
		for i := range c.counts {
			if n := c.counts[i]; i%2 == 0 {
				c.counts[i/2] = n
			} else {
				c.counts[i/2] += n
			}
		}
		c.counts = c.counts[:(len(c.counts)+1)/2]
	}
}

func (c *course) count(point int) {
	for len(c.counts) <= point {
		c.counts = append(c.counts, 0)
	}
	c.counts[point]++
}

// perSecond returns a value for each point of the axis.
func (c *course) perSecond(x *axis) []float64 {
	values := make([]float64, x.points)
	for i, n := range c.counts {
		values[i] = float64(n) / (float64(x.width) / 1e6)
	}
	return values
}

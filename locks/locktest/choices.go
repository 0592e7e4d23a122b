package locktest

// Choices walks a tree of choices along each path once, the last choice first.
// The zero value is at the beginning of the first path. One goroutine at a time
// uses it.
type Choices struct {
	path, width []int
	at          int
}

// Pick returns the next choice on this path, a number below n. With an n of 1 there is nothing to choose,
// so it adds no step to the path.
func (c *Choices) Pick(n int) int {
	if n < 2 {
		return 0
	}
	if c.at == len(c.path) {
		c.path, c.width = append(c.path, 0), append(c.width, n)
	}
	c.at++
	return c.path[c.at-1]
}

// Next goes to the beginning of the next path, if there is one.
func (c *Choices) Next() bool {
	for i := len(c.path) - 1; i >= 0; i-- {
		if c.path[i]++; c.path[i] < c.width[i] {
			c.path, c.width, c.at = c.path[:i+1], c.width[:i+1], 0
			return true
		}
	}
	return false
}

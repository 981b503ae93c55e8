package config

import "strings"

// Nearest returns the candidate that the word was probably meant to be, or "".
func Nearest(word string, candidates []string) string {
	const longest = 40
	if len(word) > longest {
		return ""
	}
	best, least := "", min(3, (len(word)+3)/4)+1
	for _, candidate := range candidates {
		if d := distance(strings.ToLower(word), candidate); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// distance is how many bytes must be inserted, deleted or replaced, or swapped
// with their neighbours, to turn a into b.
func distance(a, b string) int {
	width := len(b) + 1
	table := make([]int, (len(a)+1)*width)
	for j := range width {
		table[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := table[i*width:]
		above := table[(i-1)*width:]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+differ(a[i-1], b[j-1]))
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], table[(i-2)*width+j-2]+1)
			}
		}
	}
	return table[len(table)-1]
}

func differ(a, b byte) int {
	if a == b {
		return 0
	}
	return 1
}

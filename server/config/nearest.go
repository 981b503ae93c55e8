package config

import "strings"

// nearest returns the candidate that the word was probably meant to be, or "".
func nearest(word string, candidates []string) string {
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

// distance is how many bytes must be inserted, deleted or replaced to turn a
// into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

//go:build unix

package main

// ansi: whether terminals here understand escape sequences without being asked.
const ansi = true

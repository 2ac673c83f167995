//go:build !unix

package main

const ansi = false

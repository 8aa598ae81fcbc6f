package main

const sysFinitModule = 313

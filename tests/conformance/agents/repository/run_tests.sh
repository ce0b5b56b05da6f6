#!/bin/bash
. /testbed/lib.sh
one

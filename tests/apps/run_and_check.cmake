# cmake -DPROGRAM=... -DARGS="a;b" -DSTATUS=n -DOUTPUT=regex -P: runs the program, compares exit status and the text on
# stdout and stderr together; a refusal is one line and leaves stdout empty.
execute_process(COMMAND ${PROGRAM} ${ARGS} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE err)
if(NOT status STREQUAL STATUS)
  message(FATAL_ERROR "exit status ${status}, expected ${STATUS}\n${out}${err}")
endif()
if(NOT "${out}${err}" MATCHES "${OUTPUT}")
  message(FATAL_ERROR "the output does not match ${OUTPUT}:\n${out}${err}")
endif()
if(status EQUAL 2 AND (NOT out STREQUAL "" OR NOT err MATCHES "^[^\n]+\n$"))
  message(FATAL_ERROR "a refusal is one line on stderr:\n${out}${err}")
endif()

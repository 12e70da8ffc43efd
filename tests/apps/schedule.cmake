# penstock-schedule, run as users run it: exit statuses and what it prints.
function(penstock_schedule_test name)
  cmake_parse_arguments(ARG "" "STATUS" "OUTPUT;ARGS" ${ARGN})
  add_test(NAME apps.schedule.${name} COMMAND ${CMAKE_COMMAND}
    "-DPROGRAM=$<TARGET_FILE:penstock-schedule>" "-DARGS=${ARG_ARGS}" "-DSTATUS=${ARG_STATUS}" "-DOUTPUT=${ARG_OUTPUT}"
    -P ${CMAKE_CURRENT_SOURCE_DIR}/apps/run_and_check.cmake)
  set_tests_properties(apps.schedule.${name} PROPERTIES LABELS quick TIMEOUT 60)
endfunction()

if(TARGET penstock-schedule)
  set(plan --schedule 1f1b --pp 4 --micro-batches 8)
  set(files ${CMAKE_CURRENT_SOURCE_DIR}/apps/schedule)
  penstock_schedule_test(version STATUS 0 OUTPUT "^penstock-schedule ${PROJECT_VERSION}" ARGS --version)
  penstock_schedule_test(help STATUS 0 OUTPUT "Example:" ARGS show --help)
  penstock_schedule_test(list STATUS 0 OUTPUT "\"name\":\"1f1b\"" ARGS list --json)
  penstock_schedule_test(show STATUS 0 OUTPUT "rank 3 .*makespan 33, bubble 27.3 %" ARGS show ${plan} --width 80)
  penstock_schedule_test(export STATUS 0 OUTPUT "^0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n$"
    ARGS export --schedule 1f1b --pp 2 --micro-batches 2)
  penstock_schedule_test(export_file STATUS 0 OUTPUT "^0F0,,0F1,0B0,0B1\n,1F0,1B0,1F1,1B1\n$"
    ARGS export --schedule ${files}/bubbles.csv)
  penstock_schedule_test(simulate STATUS 0 OUTPUT "\"makespan\":33.0,\"cost\":33.0.*\"peak_in_flight\":.4,3,2,1"
    ARGS simulate ${plan} --json)
  penstock_schedule_test(simulate_timeline STATUS 0 OUTPUT "\"action\":\"3B7\",\"start\":25.0,\"end\":27.0"
    ARGS simulate ${plan} --json --timeline)
  penstock_schedule_test(verify STATUS 0 OUTPUT "^verified: [^\n]*\n$" ARGS verify ${plan})
  penstock_schedule_test(verify_file STATUS 0 OUTPUT "^verified: [^\n]*\n$" ARGS verify ${files}/bubbles.csv)
  penstock_schedule_test(verify_refuses STATUS 3
    OUTPUT "refused: rank 0, position 3, 0SEND_F1: deadlock: .*rule: no deadlock, rendezvous transport"
    ARGS verify ${files}/locks.csv)
  penstock_schedule_test(verify_transport STATUS 0 OUTPUT "transport fifo"
    ARGS verify ${files}/locks.csv --transport fifo)
  penstock_schedule_test(verify_no_schedule STATUS 2 OUTPUT "no_schedule.csv, row 2, cell 3: '1X0' is no action"
    ARGS verify ${files}/no_schedule.csv)
  penstock_schedule_test(verify_no_file STATUS 2 OUTPUT "^penstock-schedule: /no/such.csv[^\n]*\n$"
    ARGS verify /no/such.csv)
  penstock_schedule_test(show_refuses_a_locked_plan STATUS 2 OUTPUT "0F0 is already at"
    ARGS show --schedule ${files}/missing.csv)
  penstock_schedule_test(unknown_flag STATUS 2 OUTPUT "^penstock-schedule: --micro-batchs: [^\n]*--micro-batches\n$"
    ARGS show --micro-batchs 3)
  penstock_schedule_test(unknown_name STATUS 2 OUTPUT "nearest name is gpipe " ARGS verify --schedule gpip --pp 2
    --micro-batches 2)
  penstock_schedule_test(not_yet_name STATUS 2 OUTPUT "not yet" ARGS verify --schedule zb-h1 --pp 2 --micro-batches 2)
  penstock_schedule_test(not_yet_plan STATUS 2 OUTPUT "not yet" ARGS plan --model gpt2)
  penstock_schedule_test(missing_pp STATUS 2 OUTPUT "--pp is missing" ARGS show --schedule gpipe)
  penstock_schedule_test(bad_range STATUS 2 OUTPUT "--micro-batches 0: allowed is 1 or more" ARGS show
    --schedule gpipe --pp 2 --micro-batches 0)
  penstock_schedule_test(bad_list STATUS 2 OUTPUT "--cost-f 1,2,3: it has 3 numbers" ARGS simulate ${plan}
    --cost-f 1,2,3)
  penstock_schedule_test(bad_output STATUS 2 OUTPUT "/no/such/folder/x.csv" ARGS export ${plan}
    --output /no/such/folder/x.csv)
  penstock_schedule_test(file_contradicts_flag STATUS 2 OUTPUT "--pp 3: .*bubbles.csv has 2" ARGS show --schedule
    ${files}/bubbles.csv --pp 3)
  add_test(NAME apps.schedule.full_disk COMMAND sh -c
    "$<TARGET_FILE:penstock-schedule> list >/dev/full; test $? -eq 1")
  set_tests_properties(apps.schedule.full_disk PROPERTIES LABELS quick TIMEOUT 60)
endif()
